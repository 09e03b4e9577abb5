// fake-gcs.js: Google Cloud Storage as far as gs:// uses it, in memory, strict about what Google's documentation states.
// run.sh: helper
//
//   node fake-gcs.js DIR     listens on a free loopback port; ends when its parent does, or with SIGTERM
//
// DIR gets: port, env (GCS_URL), sa.json (a service account's key made at the start, token_uri here), user.json, impersonated.json,
// external-file.json, external-url.json, subject (the identity that the last two are for). The bucket is "ckpt-one"; those whose
// names begin with "ckpt-any-" are made when they are asked for.
// What it has checked by itself: RS256 assertions with node's crypto, tokens and their end, 256 KiB pieces and Content-Range of
// sessions, generation conditions, CRC-32C both in x-goog-hash and in the description, sizes of parts.
//
//   POST /_control   {"faults":[{"match":"PUT /upload","status":503}], "token_life":5, "anonymous":true, "revoke":true,
//                    "corrupt":"name", "restart":true}
//                    faults are used up one request each (times: n, after skip: n), by a regular expression on "METHOD path?query":
//                    status: refuse with it, reason: in the error; drop: read so many bytes of the body, keep what a server
//                    would, and reset the connection; lose: do it and reset instead of the reply; hang: do it, never reply; keep: a session keeps only so
//                    many bytes of this piece. corrupt: flips a byte of an object, not of its sum. revoke: all tokens end now
//   GET  /_control   what was asked: {"requests":[...], "wrong":[...], "ended":{count,size,received: of sessions}, 
//                    "started": sessions left with bytes, "sessions":n, "uploads":n, "tokens":n}
//
// Not proven against the real service: that it takes "bytes A-B/*" pieces and a last one of less than 256 KiB behind them with
// x-goog-hash as this does (its documentation and Google's own clients say so); how soon it forgets a session; how it words
// refusals; quotas; that it joins parts with a token of the scope devstorage.read_write; redirects of regions; the true STS and
// IAM services behind external accounts.
'use strict';
const http = require('http'), crypto = require('crypto'), fs = require('fs'), path = require('path');

const dir = process.argv[2], GRAIN = 256 * 1024, MIN_PART = 5 << 20;
const keys = crypto.generateKeyPairSync('rsa', { modulusLength: 2048 });
const buckets = new Map([['ckpt-one', new Map()]]);
const sessions = new Map(), uploads = new Map(), tokens = new Map();
const ended = { count: 0, size: 0, received: 0 };     // sessions, their objects' bytes, and the bytes that were sent to them
let faults = [], tokenLife = 3599, anonymous = false, generation = 1700000000000000, requests = [], wrong = [], base = '', order = 0;

//-- sums ----------------------------------------------------------------------------------------------------------------------

const table = new Int32Array(256).map((_, i) => { let c = i; for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1; return c; });
function crc32c(buffers) {
    let c = -1;
    for (const b of buffers) for (let i = 0; i < b.length; i++) c = table[(c ^ b[i]) & 255] ^ (c >>> 8);
    const out = Buffer.alloc(4);
    out.writeUInt32BE(~c >>> 0);
    return out.toString('base64');
}
const md5 = (buffers) => { const h = crypto.createHash('md5'); buffers.forEach((b) => h.update(b)); return h.digest('base64'); };
function checkHash(header, buffers) {       // x-goog-hash: crc32c=...,md5=...
    for (const part of String(header || '').split(',').map((s) => s.trim()).filter(Boolean)) {
        const [kind, sum] = [part.slice(0, part.indexOf('=')), part.slice(part.indexOf('=') + 1)];
        if (kind === 'crc32c' && sum !== crc32c(buffers)) return 'crc32c';
        if (kind === 'md5' && sum !== md5(buffers)) return 'md5';
    }
    return null;
}

//-- replies -------------------------------------------------------------------------------------------------------------------

class Refusal extends Error { constructor(status, reason, message) { super(message); this.status = status; this.reason = reason; } }
function reply(res, status, headers, body) {
    const data = Buffer.isBuffer(body) ? body : Buffer.from(body || '');
    res.writeHead(status, Object.assign({ 'Content-Length': data.length }, headers));
    res.end(res.req.method === 'HEAD' ? undefined : data);
}
const json = (res, status, value, headers) => reply(res, status, Object.assign({ 'Content-Type': 'application/json; charset=UTF-8' }, headers), JSON.stringify(value));
const esc = (s) => String(s).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;').replace(/[\x00-\x1f]/g, (c) => `&#${c.charCodeAt(0)};`);
const xml = (res, status, text, headers) => reply(res, status, Object.assign({ 'Content-Type': 'application/xml; charset=UTF-8' }, headers), `<?xml version='1.0' encoding='UTF-8'?>${text}`);
const refuseXml = (res, e) => xml(res, e.status, `<Error><Code>${esc(e.reason)}</Code><Message>${esc(e.message)}</Message></Error>`);
const refuseJson = (res, e) => json(res, e.status, { error: { code: e.status, message: e.message, errors: [{ domain: 'global', reason: e.reason, message: e.message }] } });

//-- tokens --------------------------------------------------------------------------------------------------------------------

function issue(life) {
    const token = 'ya29.fake-' + crypto.randomBytes(24).toString('base64url');
    tokens.set(token, Date.now() + 1000 * life);
    return token;
}
const grant = (res) => json(res, 200, { access_token: issue(tokenLife), expires_in: tokenLife, token_type: 'Bearer' });
const deny = (res, error, why) => { wrong.push(`${error}: ${why}`); json(res, 400, { error, error_description: why }); };
const SCOPES = ['devstorage.read_write', 'devstorage.full_control', 'cloud-platform'].map((s) => 'https://www.googleapis.com/auth/' + s);

function checkAssertion(jwt) {
    const parts = String(jwt).split('.');
    if (parts.length !== 3 || parts.some((p) => !/^[A-Za-z0-9_-]+$/.test(p))) return 'not three parts of base64url';
    const [head, claims] = parts.slice(0, 2).map((p) => JSON.parse(Buffer.from(p, 'base64url').toString()));
    if (head.alg !== 'RS256' || head.typ !== 'JWT' || head.kid !== 'fake-key-1') return 'wrong header';
    if (!crypto.verify('RSA-SHA256', Buffer.from(parts[0] + '.' + parts[1]), keys.publicKey, Buffer.from(parts[2], 'base64url'))) return 'Invalid JWT Signature.';
    const now = Date.now() / 1000;
    if (claims.iss !== 'ckpt@fake.iam.gserviceaccount.com') return 'wrong iss';
    if (claims.aud !== base + '/token') return 'wrong aud';
    if (!SCOPES.includes(claims.scope)) return 'wrong scope';
    if (!Number.isInteger(claims.iat) || Math.abs(claims.iat - now) > 300 || claims.exp - claims.iat > 3600 || claims.exp < now) return 'wrong times';
    return null;
}

function tokenService(req, res, url, body) {
    const form = new URLSearchParams(body.toString());
    if (req.headers['content-type'] !== 'application/x-www-form-urlencoded') return deny(res, 'invalid_request', 'no form');
    if (url.pathname === '/sts/v1/token') {
        const subject = fs.readFileSync(path.join(dir, 'subject'), 'utf8').trim();
        if (form.get('grant_type') !== 'urn:ietf:params:oauth:grant-type:token-exchange' || form.get('audience') !== '//iam.fake/pool' || !SCOPES.includes(form.get('scope')) ||
            form.get('requested_token_type') !== 'urn:ietf:params:oauth:token-type:access_token' || form.get('subject_token_type') !== 'urn:ietf:params:oauth:token-type:jwt')
            return deny(res, 'invalid_request', 'wrong form');
        return form.get('subject_token') === subject ? grant(res) : deny(res, 'invalid_grant', 'The subject token is wrong: ' + form.get('subject_token'));
    }
    if (form.get('grant_type') === 'urn:ietf:params:oauth:grant-type:jwt-bearer') {
        const why = checkAssertion(form.get('assertion'));
        return why === null ? grant(res) : deny(res, 'invalid_grant', why);
    }
    if (form.get('grant_type') === 'refresh_token' && form.get('client_id') === 'fake-client' && form.get('client_secret') === 'GOCSPX-fake-secret-of-the-client' &&
        form.get('refresh_token') === '1//fake-refresh-token-that-is-a-secret') return grant(res);
    return deny(res, 'invalid_grant', 'Bad Request');
}

function authorize(req, isXml) {
    const h = req.headers.authorization;
    if (anonymous) {
        if (h !== undefined) { wrong.push('a token for an emulator'); throw new Refusal(401, 'authError', 'emulators take no token'); }
        return;
    }
    const m = /^Bearer ([^ ]+)$/.exec(h || '');
    if (!m) throw new Refusal(401, isXml ? 'AuthenticationRequired' : 'required', 'Anonymous caller does not have storage access');
    if (!tokens.has(m[1]) || tokens.get(m[1]) < Date.now()) throw new Refusal(401, isXml ? 'AuthenticationRequired' : 'authError', 'Invalid Credentials');
}

//-- objects -------------------------------------------------------------------------------------------------------------------

function bucket(name, isXml) {
    if (!buckets.has(name) && name.startsWith('ckpt-any-')) buckets.set(name, new Map());
    if (!buckets.has(name)) throw new Refusal(404, isXml ? 'NoSuchBucket' : 'notFound', 'The specified bucket does not exist.');
    return buckets.get(name);
}
function object(b, name) {
    if (!b.has(name)) throw new Refusal(404, 'notFound', 'No such object: ' + name);
    return b.get(name);
}
function checkName(name) {
    if (!name || Buffer.byteLength(name) > 1024 || /[\r\n]/.test(name) || name === '.' || name === '..') throw new Refusal(400, 'invalid', `Invalid object name: ${name}`);
}
function checkGeneration(b, name, want) {
    if (want === undefined || want === null) return;
    const now = b.has(name) ? b.get(name).generation : '0';
    if (String(want) !== now) throw new Refusal(412, 'conditionNotMet', 'At least one of the pre-conditions you specified did not hold.');
}
function store(b, meta, buffers, composite) {
    const data = Buffer.concat(buffers), sum = crc32c([data]);
    checkName(meta.name);
    if (meta.crc32c && meta.crc32c !== sum) throw new Refusal(400, 'invalid', `Provided CRC32C "${meta.crc32c}" doesn't match calculated CRC32C "${sum}".`);
    if (meta.md5Hash && meta.md5Hash !== md5([data])) throw new Refusal(400, 'invalid', 'Provided MD5 hash does not match.');
    for (const v of Object.values(meta.metadata || {})) if (typeof v !== 'string') throw new Refusal(400, 'invalid', 'metadata must be text');
    const o = { name: meta.name, data, generation: String(++generation), crc32c: sum, metadata: meta.metadata, contentType: meta.contentType, updated: new Date().toISOString(),
        md5Hash: composite ? undefined : md5([data]), componentCount: composite };
    b.set(meta.name, o);
    return o;
}
const describe = (bn, o) => ({ kind: 'storage#object', bucket: bn, name: o.name, generation: o.generation, metageneration: '1', size: String(o.data.length), crc32c: o.crc32c,
    md5Hash: o.md5Hash, contentType: o.contentType, updated: o.updated, timeCreated: o.updated, metadata: o.metadata, componentCount: o.componentCount, storageClass: 'STANDARD' });

function media(req, res, o) {
    const headers = { 'x-goog-hash': `crc32c=${o.crc32c}` + (o.md5Hash ? `,md5=${o.md5Hash}` : ''), 'x-goog-generation': o.generation, 'x-goog-stored-content-length': o.data.length,
        'Content-Type': o.contentType || 'application/octet-stream', ETag: `"${o.generation}"` };
    const m = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range || '');
    if (!m) return reply(res, 200, headers, o.data);
    const from = +m[1], to = Math.min(m[2] === '' ? Infinity : +m[2], o.data.length - 1);
    if (from >= o.data.length) return reply(res, 416, { 'Content-Range': `bytes */${o.data.length}` }, 'The requested range cannot be satisfied.');
    return reply(res, 206, Object.assign(headers, { 'Content-Range': `bytes ${from}-${to}/${o.data.length}` }), o.data.subarray(from, to + 1));
}

function list(res, bn, b, q) {
    const prefix = q.get('prefix') || '', max = Math.min(+(q.get('maxResults') || 1000), 1000), after = q.get('pageToken') ? Buffer.from(q.get('pageToken'), 'base64url') : null;
    const names = [...b.keys()].filter((n) => n.startsWith(prefix)).map((n) => Buffer.from(n)).sort(Buffer.compare).filter((n) => !after || Buffer.compare(n, after) > 0);
    const page = names.slice(0, max), out = { kind: 'storage#objects', items: page.map((n) => describe(bn, b.get(n.toString()))) };
    if (names.length > max) out.nextPageToken = page[page.length - 1].toString('base64url');
    if (!out.items.length) delete out.items;
    json(res, 200, out);
}

//-- uploads of the JSON API ---------------------------------------------------------------------------------------------------

function multipart(req, body) {
    const m = /^multipart\/related; *boundary="?([^";]+)"?/.exec(req.headers['content-type'] || '');
    if (!m) throw new Refusal(400, 'badContent', 'Unsupported content with type: ' + req.headers['content-type']);
    const mark = Buffer.from('--' + m[1]), parts = [];
    if (body.indexOf(mark) !== 0) throw new Refusal(400, 'badRequest', 'Missing boundary');
    for (let at = mark.length; ;) {
        if (body.subarray(at, at + 2).toString() === '--') break;
        if (body.subarray(at, at + 2).toString() !== '\r\n') throw new Refusal(400, 'badRequest', 'Bad boundary');
        const next = body.indexOf(Buffer.concat([Buffer.from('\r\n'), mark]), at), head = body.indexOf('\r\n\r\n', at);
        if (next < 0 || head < 0 || head > next) throw new Refusal(400, 'badRequest', 'Missing end boundary in multipart body.');
        parts.push({ head: body.subarray(at, head).toString(), data: body.subarray(head + 4, next) });
        at = next + 2 + mark.length;
    }
    if (parts.length !== 2 || !/content-type: *application\/json/i.test(parts[0].head)) throw new Refusal(400, 'badRequest', 'Must have two parts');
    return [JSON.parse(parts[0].data.toString()), parts[1].data];
}

function upload(req, res, url, bn, b, body) {
    const q = url.searchParams, kind = q.get('uploadType'), match = q.get('ifGenerationMatch');
    if (kind === 'media') {
        checkGeneration(b, q.get('name'), match);
        const bad = checkHash(req.headers['x-goog-hash'], [body]);
        if (bad) throw new Refusal(400, 'invalid', `Provided ${bad} doesn't match.`);
        return json(res, 200, describe(bn, store(b, { name: q.get('name'), contentType: req.headers['content-type'] }, [body])));
    }
    if (kind === 'multipart') {
        const [meta, data] = multipart(req, body);
        if (!meta.name) meta.name = q.get('name');
        checkGeneration(b, meta.name, match);
        return json(res, 200, describe(bn, store(b, meta, [data])));
    }
    if (kind !== 'resumable') throw new Refusal(400, 'badRequest', 'Unknown uploadType');
    if (body.length && !/^application\/json/.test(req.headers['content-type'] || '')) throw new Refusal(400, 'badContent', 'metadata must be JSON');
    const meta = body.length ? JSON.parse(body.toString()) : {};
    if (!meta.name) meta.name = q.get('name');
    if (!meta.contentType) meta.contentType = req.headers['x-upload-content-type'];
    checkName(meta.name);
    checkGeneration(b, meta.name, match);
    const id = crypto.randomBytes(30).toString('base64url');
    sessions.set(id, { bn, meta, match, pieces: [], size: 0, done: null });
    return reply(res, 200, { Location: `${base}/upload/storage/v1/b/${encodeURIComponent(bn)}/o?uploadType=resumable&name=${encodeURIComponent(meta.name)}&upload_id=${id}` }, '');
}

function session(req, res, url, body, fault, partial) {
    const id = url.searchParams.get('upload_id'), s = sessions.get(id);
    if (!s) throw new Refusal(404, 'notFound', 'No such upload session');
    if (s.gone) throw new Refusal(410, 'gone', 'The upload session is gone');
    if (req.method === 'DELETE') { s.gone = true; s.pieces = []; return reply(res, 499, {}, ''); }
    if (req.method !== 'PUT') throw new Refusal(405, 'httpMethodNotAllowed', 'PUT or DELETE');
    if (s.done) return json(res, 200, s.done);
    s.received = (s.received || 0) + body.length;
    const incomplete = () => reply(res, 308, s.size > 0 ? { Range: `bytes=0-${s.size - 1}`, 'X-Range-MD5': 'x' } : {}, '');
    const range = req.headers['content-range'];
    let total = null, data = body;
    if (range === undefined) {
        if (s.size > 0) throw new Refusal(400, 'badRequest', 'Content-Range is missing');
        total = body.length;
    } else {
        const m = /^bytes (?:(\d+)-(\d+|\*)|\*)\/(\d+|\*)$/.exec(range);
        if (!m) throw new Refusal(400, 'badRequest', 'Failed to parse Content-Range header.');
        if (m[3] !== '*') total = +m[3];
        if (m[1] === undefined) {
            if (body.length) throw new Refusal(400, 'badRequest', 'a status query has no body');
            if (total === null || total !== s.size) return incomplete();
            data = Buffer.alloc(0);
        } else {
            if (m[2] === '*') total = +m[1] + body.length;
            else if (!partial && +m[2] - +m[1] + 1 !== body.length) throw new Refusal(400, 'badRequest', 'Content-Range does not fit Content-Length');
            if (+m[1] !== s.size) throw new Refusal(400, 'badRequest', `Invalid request. The upload is at ${s.size}, not ${m[1]}.`);
            const last = total !== null && +m[1] + body.length === total;
            if (!last && !partial && body.length % GRAIN !== 0) {
                wrong.push('a piece that is no multiple of 256 KiB');
                throw new Refusal(400, 'badRequest', 'Invalid request. The number of bytes uploaded is required to be equal or greater than 262144, and a multiple of it.');
            }
        }
    }
    if (partial || (fault && fault.keep !== undefined)) {
        const n = Math.floor(Math.min(data.length, fault && fault.keep !== undefined ? fault.keep : data.length) / GRAIN) * GRAIN;
        if (n > 0) { s.pieces.push(data.subarray(0, n)); s.size += n; }
        return partial ? undefined : incomplete();
    }
    if (total === null || s.size + data.length < total) {
        s.pieces.push(data);
        s.size += data.length;
        return incomplete();
    }
    if (s.size + data.length > total) throw new Refusal(400, 'badRequest', 'more bytes than the total');
    const all = s.pieces.concat([data]), bad = checkHash(req.headers['x-goog-hash'], all), b = bucket(s.bn);
    if (bad) { s.gone = true; throw new Refusal(400, 'invalid', `Provided ${bad.toUpperCase()} in x-goog-hash doesn't match the calculated one.`); }
    checkGeneration(b, s.meta.name, s.match);
    s.size = total;
    s.done = describe(s.bn, store(b, s.meta, all));
    ended.count++;
    ended.size += total;
    ended.received += s.received;
    s.pieces = [];
    return json(res, 200, s.done);
}

//-- the XML API ---------------------------------------------------------------------------------------------------------------

function xmlApi(req, res, url, body) {
    const q = url.searchParams, cut = url.pathname.slice(1).split('/'), bn = decodeURIComponent(cut[0]), name = cut.slice(1).map(decodeURIComponent).join('/');
    const ns = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"', b = bucket(bn, true);
    for (const h of Object.keys(req.headers)) if (h.startsWith('x-amz-')) throw new Refusal(400, 'InvalidArgument', 'x-amz- headers with a token: ' + h);
    if (!name) {
        if (req.method !== 'GET' || !q.has('uploads')) throw new Refusal(400, 'InvalidURI', 'not done here');
        const max = Math.min(+(q.get('max-uploads') || 1000), 1000), prefix = q.get('prefix') || '', key = q.get('key-marker') || '', mark = q.get('upload-id-marker') || '';
        const all = [...uploads.entries()].filter(([, u]) => u.bn === bn && u.name.startsWith(prefix)).sort((x, y) => (x[1].name < y[1].name ? -1 : x[1].name > y[1].name ? 1 : x[1].order - y[1].order));
        let from = 0;
        if (key) while (from < all.length && (all[from][1].name < key || (all[from][1].name === key && (!mark || all[from][1].order <= (uploads.get(mark) || { order: 1e9 }).order)))) from++;
        const page = all.slice(from, from + max), more = from + max < all.length, last = page[page.length - 1];
        return xml(res, 200, `<ListMultipartUploadsResult ${ns}><Bucket>${esc(bn)}</Bucket>` + (more ? `<NextKeyMarker>${esc(last[1].name)}</NextKeyMarker><NextUploadIdMarker>${last[0]}</NextUploadIdMarker>` : '') +
            `<IsTruncated>${more}</IsTruncated>` + page.map(([id, u]) => `<Upload><Key>${esc(u.name)}</Key><UploadId>${id}</UploadId><Initiated>${u.began}</Initiated></Upload>`).join('') + '</ListMultipartUploadsResult>');
    }
    checkName(name);
    if (q.has('uploads') && req.method === 'POST') {
        if (body.length) throw new Refusal(400, 'InvalidArgument', 'a body');
        const metadata = {}, id = 'VX' + crypto.randomBytes(20).toString('base64url');
        for (const [h, v] of Object.entries(req.headers)) if (h.startsWith('x-goog-meta-')) metadata[h.slice(12)] = v;
        if (req.headers['x-goog-if-generation-match'] !== undefined) throw new Refusal(400, 'InvalidArgument', 'no preconditions here');
        uploads.set(id, { bn, name, metadata, contentType: req.headers['content-type'], parts: new Map(), began: new Date().toISOString(), order: ++order });
        return xml(res, 200, `<InitiateMultipartUploadResult ${ns}><Bucket>${esc(bn)}</Bucket><Key>${esc(name)}</Key><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
    }
    const id = q.get('uploadId'), u = uploads.get(id);
    if (id === null) throw new Refusal(400, 'InvalidArgument', 'not done here');
    if (!u || u.name !== name || u.bn !== bn) throw new Refusal(404, 'NoSuchUpload', 'The requested upload was not found.');
    if (req.method === 'PUT') {
        const n = +q.get('partNumber');
        if (!Number.isInteger(n) || n < 1 || n > 10000) throw new Refusal(400, 'InvalidArgument', 'partNumber');
        const bad = checkHash(req.headers['x-goog-hash'], [body]);
        if (bad) throw new Refusal(400, 'BadDigest', `The ${bad} you specified did not match what we computed.`);
        const etag = `"${crypto.createHash('md5').update(body).digest('hex')}"`;
        u.parts.set(n, { data: body, etag });
        return reply(res, 200, { ETag: etag, 'x-goog-hash': `crc32c=${crc32c([body])},md5=${md5([body])}` }, '');
    }
    if (req.method === 'DELETE') { uploads.delete(id); return reply(res, 204, {}, ''); }
    const numbers = [...u.parts.keys()].sort((x, y) => x - y);
    if (req.method === 'GET') {
        const max = +(q.get('max-parts') || 1000), after = +(q.get('part-number-marker') || 0), rest = numbers.filter((n) => n > after), page = rest.slice(0, max), more = rest.length > max;
        return xml(res, 200, `<ListPartsResult ${ns}><UploadId>${id}</UploadId>` + (more ? `<NextPartNumberMarker>${page[page.length - 1]}</NextPartNumberMarker>` : '') + `<IsTruncated>${more}</IsTruncated>` +
            page.map((n) => `<Part><PartNumber>${n}</PartNumber><ETag>${esc(u.parts.get(n).etag)}</ETag><Size>${u.parts.get(n).data.length}</Size></Part>`).join('') + '</ListPartsResult>');
    }
    if (req.method !== 'POST') throw new Refusal(405, 'MethodNotAllowed', req.method);
    const asked = [...body.toString().matchAll(/<Part>.*?<\/Part>/gs)].map((m) => [+/<PartNumber>(\d+)</.exec(m[0])[1], /<ETag>(.*?)</.exec(m[0])[1].replace(/&quot;/g, '"')]);
    if (!asked.length) throw new Refusal(400, 'MalformedCompleteMultipartUploadRequest', 'no parts');
    for (let i = 0; i < asked.length; i++) {
        const part = u.parts.get(asked[i][0]);
        if (!part || part.etag.replace(/"/g, '') !== asked[i][1].replace(/"/g, '')) throw new Refusal(400, 'InvalidPart', 'part ' + asked[i][0]);
        if (i > 0 && asked[i][0] <= asked[i - 1][0]) throw new Refusal(400, 'InvalidPartOrder', 'part ' + asked[i][0]);
        if (i + 1 < asked.length && part.data.length < MIN_PART) throw new Refusal(400, 'EntityTooSmall', 'part ' + asked[i][0]);
    }
    const o = store(b, { name, metadata: u.metadata, contentType: u.contentType }, asked.map((a) => u.parts.get(a[0]).data), asked.length);
    uploads.delete(id);
    return xml(res, 200, `<CompleteMultipartUploadResult ${ns}><Bucket>${esc(bn)}</Bucket><Key>${esc(name)}</Key><ETag>"x-${asked.length}"</ETag></CompleteMultipartUploadResult>`,
        { 'x-goog-hash': `crc32c=${o.crc32c}`, 'x-goog-generation': o.generation });
}

//-- who is asked --------------------------------------------------------------------------------------------------------------

function control(req, res, body) {
    if (req.method === 'POST') {
        const c = JSON.parse(body.toString());
        if (c.faults) faults = c.faults.map((f) => Object.assign({ times: 1 }, f));
        if (c.token_life !== undefined) tokenLife = c.token_life;
        if (c.anonymous !== undefined) anonymous = c.anonymous;
        if (c.revoke) tokens.clear();
        if (c.forget) { sessions.clear(); uploads.clear(); }
        if (c.corrupt) buckets.get('ckpt-one').get(c.corrupt).data[0] ^= 1;
        if (c.clear) { requests = []; wrong = []; }
        if (c.token) return json(res, 200, { token: issue(3600) });
    }
    const open = [...sessions.values()].filter((s) => !s.done && !s.gone), held = open.length, started = open.filter((s) => s.received > 0).length;
    return json(res, 200, { requests, wrong, faults, sessions: held, uploads: uploads.size, tokens: tokens.size, ended, started });
}

function serve(req, res, body, fault, partial) {
    const url = new URL(req.url, base), p = url.pathname;
    if (p === '/_control') return control(req, res, body);
    if (p === '/token' || p === '/sts/v1/token') return tokenService(req, res, url, body);
    if (p === '/identity') return req.headers['x-fake'] === 'yes' ? json(res, 200, { value: { ignored: 1 }, id_token: fs.readFileSync(path.join(dir, 'subject'), 'utf8').trim() }) : reply(res, 403, {}, 'no');
    if (p.endsWith(':generateAccessToken')) {
        authorize(req);
        const ask = JSON.parse(body.toString());
        if (!Array.isArray(ask.scope) || !SCOPES.includes(ask.scope[0]) || ask.lifetime !== '3600s') return json(res, 400, { error: { status: 'INVALID_ARGUMENT', message: 'wrong' } });
        return json(res, 200, { accessToken: issue(tokenLife), expireTime: new Date(Date.now() + 1000 * tokenLife).toISOString().replace(/\.\d+Z/, 'Z') });
    }
    if (p === '/computeMetadata/v1/instance/service-accounts/default/token') {
        if (req.headers['metadata-flavor'] !== 'Google') return reply(res, 403, { 'Metadata-Flavor': 'Google' }, 'Missing Metadata-Flavor');
        return json(res, 200, { access_token: issue(tokenLife), expires_in: tokenLife, token_type: 'Bearer' }, { 'Metadata-Flavor': 'Google' });
    }
    if (p.startsWith('/upload/') && url.searchParams.has('upload_id')) return session(req, res, url, body, fault, partial);
    const m = /^\/(?:(upload|download)\/)?storage\/v1\/b\/([^/]+)(?:\/o(?:\/(.*))?)?$/.exec(p);
    authorize(req, !m);
    if (!m) return xmlApi(req, res, url, body);
    const bn = decodeURIComponent(m[2]), b = bucket(bn), q = url.searchParams;
    if (m[1] === 'upload') return upload(req, res, url, bn, b, body);
    if (m[3] === undefined) return p.endsWith('/o') ? list(res, bn, b, q) : json(res, 200, { kind: 'storage#bucket', name: bn, location: 'US' });
    if (m[3].includes('/')) throw new Refusal(404, 'notFound', 'a slash in the name must be encoded');
    const name = decodeURIComponent(m[3]), o = object(b, name);
    checkGeneration(b, name, q.get('ifGenerationMatch'));
    if (q.get('generation') && q.get('generation') !== o.generation) throw new Refusal(404, 'notFound', 'No such object: ' + name);
    if (req.method === 'DELETE') { b.delete(name); return reply(res, 204, {}, ''); }
    if (req.method !== 'GET') throw new Refusal(405, 'httpMethodNotAllowed', req.method);
    return q.get('alt') === 'media' || m[1] === 'download' ? media(req, res, o) : json(res, 200, describe(bn, o));
}

const server = http.createServer((req, res) => {
    const line = `${req.method} ${req.url}`, chunks = [];
    const fault = req.url === '/_control' ? undefined : faults.find((f) => f.times > 0 && new RegExp(f.match).test(line) && !(f.skip-- > 0));
    let got = 0, over = false;
    if (fault) fault.times--;
    if (req.url !== '/_control') requests.push(line);
    const end = (partial) => {
        if (over) return;
        over = true;
        const body = Buffer.concat(chunks), quiet = partial || (fault && (fault.lose || fault.hang));
        const to = quiet ? { req, writeHead() {}, end() {} } : res;
        try {
            if (fault && fault.status) throw new Refusal(fault.status, fault.reason || 'backendError', fault.message || 'the test says so');
            serve(req, to, partial && fault && fault.drop !== undefined ? body.subarray(0, fault.drop) : body, fault, partial);
        } catch (e) {
            if (!(e instanceof Refusal)) { wrong.push(`${line}: ${e.stack}`); e = new Refusal(400, 'invalid', e.message); }
            const isXml = !/^\/(upload|download|storage|token)/.test(req.url);
            if (isXml) refuseXml(to, e); else refuseJson(to, e);
        }
        if (quiet && !(fault && fault.hang)) req.socket.resetAndDestroy();
    };
    req.on('data', (c) => { chunks.push(c); got += c.length; if (fault && fault.drop !== undefined && got >= fault.drop) end(true); });
    req.on('end', () => end(false));
    // What has come of a piece before the connection was lost stays with its session.
    req.on('error', () => { if (!over && req.method === 'PUT' && req.url.includes('upload_id=')) end(true); over = true; });
});
server.keepAliveTimeout = 60000;
server.listen(0, '127.0.0.1', () => {
    base = `http://127.0.0.1:${server.address().port}`;
    const put = (name, value) => fs.writeFileSync(path.join(dir, name), typeof value === 'string' ? value : JSON.stringify(value, null, 1));
    const user = { type: 'authorized_user', client_id: 'fake-client', client_secret: 'GOCSPX-fake-secret-of-the-client', refresh_token: '1//fake-refresh-token-that-is-a-secret', token_uri: base + '/token', quota_project_id: 'quota-project' };
    const outside = { type: 'external_account', audience: '//iam.fake/pool', subject_token_type: 'urn:ietf:params:oauth:token-type:jwt', token_url: base + '/sts/v1/token' };
    const part = base + '/v1/projects/-/serviceAccounts/other@fake:generateAccessToken';
    put('subject', 'subject-token-' + crypto.randomBytes(20).toString('hex') + '\n');
    put('sa.json', { type: 'service_account', project_id: 'fake', private_key_id: 'fake-key-1', private_key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }), client_email: 'ckpt@fake.iam.gserviceaccount.com', token_uri: base + '/token', universe_domain: 'googleapis.com' });
    put('user.json', user);
    put('external-file.json', Object.assign({ credential_source: { file: path.join(dir, 'subject') } }, outside));
    put('external-url.json', Object.assign({ service_account_impersonation_url: part, credential_source: { url: base + '/identity', headers: { 'X-Fake': 'yes' }, format: { type: 'json', subject_token_field_name: 'id_token' } } }, outside));
    put('impersonated.json', { type: 'impersonated_service_account', service_account_impersonation_url: part, source_credentials: user });
    put('env', `GCS_URL=${base}\n`);
    put('port', String(server.address().port));
});
const parent = process.ppid;
setInterval(() => { if (process.ppid !== parent) process.exit(0); }, 500);
