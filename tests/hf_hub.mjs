// hf_hub.mjs: helper of test_cli_shards.sh: has @huggingface/hub, Hugging Face's own JavaScript client, read a checkpoint of several
// .safetensors files through its model.safetensors.index.json, and compares what it finds with what the index says.
//
//     node hf_hub.mjs NODE_MODULES DIR COUNT
//
// DIR is shown to it as a repository of the hub; no connection is made. COUNT: of elements in all tensors.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import fs from 'node:fs';
import path from 'node:path';

const [modules, dir, count] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), 'x.js'));
const hub = await import(pathToFileURL(require.resolve('@huggingface/hub')).href);

// A Response made by hand has no address, and the client goes on from where the hub has redirected it to.
function answer(url, status, body, headers) {
    return Object.defineProperty(new Response(body, { status, headers }), 'url', { value: String(url) });
}
// What the hub answers: whole files and ranges of them.
async function local(url, options = {}) {
    const name = decodeURIComponent(new URL(url).pathname).replace(/^\/ckpt\/test\/(resolve|raw)\/main\//, '');
    const file = path.join(dir, name);
    if (!fs.existsSync(file)) return answer(url, 404, 'Entry not found', { 'x-error-code': 'EntryNotFound' });
    const all = fs.readFileSync(file), headers = { etag: '"1"', 'content-type': 'application/octet-stream' };
    const range = /bytes=(\d+)-(\d+)/.exec(new Headers(options.headers).get('range') ?? '');
    if (!range) return answer(url, 200, options.method === 'HEAD' ? null : all, { ...headers, 'content-length': String(all.length) });
    const part = all.subarray(Number(range[1]), Number(range[2]) + 1);
    headers['content-range'] = `bytes ${range[1]}-${Number(range[1]) + part.length - 1}/${all.length}`;
    return answer(url, 206, part, headers);
}

const found = await hub.parseSafetensorsMetadata({ repo: 'ckpt/test', hubUrl: 'http://127.0.0.1', fetch: local, computeParametersCount: true });
const index = JSON.parse(fs.readFileSync(path.join(dir, 'model.safetensors.index.json'), 'utf8'));
const wrong = [];
if (!found.sharded) wrong.push('it is not seen as sharded');
const seen = new Map();
let bytes = 0;
for (const [file, header] of Object.entries(found.headers ?? {})) {
    for (const [name, t] of Object.entries(header)) {
        if (name === '__metadata__') continue;
        if (seen.has(name)) wrong.push(`${name} is in two files`);
        seen.set(name, file);
        bytes += t.data_offsets[1] - t.data_offsets[0];
        if (index.weight_map[name] !== file) wrong.push(`${name} is in ${file}, and the index says ${index.weight_map[name]}`);
    }
}
for (const name of Object.keys(index.weight_map)) if (!seen.has(name)) wrong.push(`${name} is in no file`);
if (index.metadata.total_size !== bytes) wrong.push(`total_size is ${index.metadata.total_size}, the tensors have ${bytes} bytes`);
const elements = Object.values(found.parameterCount).reduce((a, b) => a + b, 0);
if (elements !== Number(count)) wrong.push(`${elements} parameters, ${count} were saved`);
for (const w of wrong) console.log(`hf_hub.mjs: ${w}`);
console.log(`@huggingface/hub reads ${seen.size} tensors in ${Object.keys(found.headers ?? {}).length} files`);
process.exit(wrong.length > 0 ? 1 : 0);
