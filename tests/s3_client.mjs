// s3_client.mjs: helper of s3_rgw.sh: @aws-sdk/client-s3, Amazon's own client, reads and lists what we put, and puts what we read.
//
//     node s3_client.mjs NODE_MODULES ENDPOINT BUCKET PREFIX
//
// Credentials from the environment; the files "big" and "small" of the current folder.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import fs from 'node:fs';
import path from 'node:path';

const [modules, endpoint, Bucket, prefix] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), 'x.js'));
const sdk = await import(pathToFileURL(require.resolve('@aws-sdk/client-s3')).href);
const { S3Client, GetObjectCommand, PutObjectCommand, ListObjectsV2Command } = sdk.default ?? sdk;
// Its default since 2025, checksums in trailers, is nothing that the gateway knows.
const s3 = new S3Client({ endpoint, region: 'us-east-1', forcePathStyle: true, requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED' });

function expect(good, what) {
    if (good) return;
    console.log(`s3_client.mjs: ${what}`);
    process.exit(1);
}
const big = fs.readFileSync('big'), small = fs.readFileSync('small');
const got = await s3.send(new GetObjectCommand({ Bucket, Key: `${prefix}in parts` }));
expect(Buffer.from(await got.Body.transformToByteArray()).equals(big), 'what we put in parts comes back otherwise');
const part = await s3.send(new GetObjectCommand({ Bucket, Key: `${prefix}in parts`, Range: 'bytes=1000-1999' }));
expect(Buffer.from(await part.Body.transformToByteArray()).equals(big.subarray(1000, 2000)), 'a range comes back otherwise');
await s3.send(new PutObjectCommand({ Bucket, Key: `${prefix}sdk/a b+c`, Body: small }));
await s3.send(new PutObjectCommand({ Bucket, Key: `${prefix}sdk/empty`, Body: '' }));
const listed = await s3.send(new ListObjectsV2Command({ Bucket, Prefix: prefix }));
expect(listed.Contents.some(o => o.Key === `${prefix}in parts` && o.Size === big.length), 'what we put is not listed');
console.log('done');
