// fake-databricks.js: a Databricks workspace (Files API, MLflow, OAuth), an open source MLflow server, and the clouds behind them, as
// far as dbfs: and mlflow-artifacts: use them, in memory, strict about what is documented.
// run.sh: helper
//
//   node fake-databricks.js DIR     listens on two free loopback ports; ends when its parent does, or with SIGTERM
//
// DIR gets: port, env (FAKE_URL, FAKE_TOKEN, FAKE_CLIENT_ID, FAKE_CLIENT_SECRET, FAKE_USER, FAKE_PASSWORD), signed (a line for
// the signature of each address that was given away; those of resumable uploads have an upload_id, as Google's). The volume is
// /Volumes/main/default/ckpt, the experiment of a given run 77, the run 0123abcd.
// What it checks by itself: tokens and their end, Basic of the token service, bodies key by key, paths that are encoded as they
// should be, that no login ever reaches the cloud (the second port), signatures and ends of the addresses that it signs, and the
// headers that go with them, part numbers, ETags and sizes of parts, block lists.
//
//   POST /_control   {"faults":[{"match":"PUT /api","status":503}], "clear":true, "page":3, "token_life":130, "revoke":true, "open":true,
//                    "cloud":"aws|azure|gcp|adls", "mpu":true, "need_folders":true, "no_links":true, "link_life":1, "resumable":true,
//                    "corrupt":"path", "oss":true, "forget":true, "one_door":true, "empty":true, "tell":true, "blind":true, "keep_half":true}
//                    resumable: the Files API offers Google's resumable uploads instead of parts; keep_half: they keep half of a piece.
//                    blind: addresses of parts are signed without a look at the upload, as a service may do that has only the keys.
//                    empty: no file is there any more. tell: refusals of the cloud quote address and signature.
//                    one_door: signed addresses lead to /cloud/ at the host that was asked, so that one fault proxy is before both.
//                    oss: runs are of open source, whose artifacts are behind the proxy. faults are used up one request each (times: n, after skip: n), by a regular expression on "METHOD url", or
//                    "CLOUD METHOD url": status: refuse with it; drop: read so many bytes of the body and reset the connection; lose:
//                    do it and reset instead of the reply; hang: do it and never reply; etag: name a part so; keep: keep so many bytes of a
//                    body and acknowledge it. corrupt: flips a byte of a file.
//   GET  /_control   {"requests":[...], "wrong":[...], "uploads":n, "files":n, "runs":n, "started":n (uploads with bytes)}
//
// Not proven against the real services: how they word refusals (the classes by code are documented, those of an address that has
// run out are the clouds'); that complete-upload of the Files API wants the ETag with its quotes as the cloud gave it, and how long a
// session lasts; that create-resumable-upload-url gives the address of one of Google's own sessions, which takes a question, an end
// without bytes and DELETE as Google documents them (Databricks' SDK asks and ends so); Last-Modified steps by a second with each write here, the real one may not; the Data Lake's append and flush; quotas.
// Of Databricks' own MLflow: that it takes a count of parts that is larger than what is sent; what its presigned reads answer for
// what is not there; whether it looks at an upload before it signs an address of a part (both are tried here: blind); what it makes of
// the cloud's refusal to complete one that is gone (404 here; 400 and 500 would do: the file is read back then); how long its
// addresses last (an hour here), and that the one which gives an upload up takes DELETE; whether credentials-for-write gives
// another address each time it is asked; that blocks of Azure may be put by any number of such addresses, one after another.
'use strict';
const http = require('http'), crypto = require('crypto'), fs = require('fs'), path = require('path');

const dir = process.argv[2], VOLUME = '/Volumes/main/default/ckpt', MIN_PART = 5 << 20, secret = crypto.randomBytes(32);
const PAT = 'dapi' + crypto.randomBytes(16).toString('hex'), ID = crypto.randomUUID(), SECRET = 'dose' + crypto.randomBytes(16).toString('hex');
const USER = 'mlflow-user', PASSWORD = 'pass-' + crypto.randomBytes(12).toString('hex');
const files = new Map(), folders = new Set([VOLUME]), artifacts = new Map(), runFiles = new Map(), uploads = new Map(), tokens = new Map();
const signed = fs.createWriteStream(path.join(dir, 'signed'));
const experiments = new Map([['77', 'given']]), runs = new Map([['0123abcd', '77']]);
let faults = [], requests = [], wrong = [], base = '', cloudBase = '', clock = Math.floor(Date.now() / 1000);
let page = 1000, tokenLife = 3600, open = false, cloudKind = 'aws', mpu = false, needFolders = false, noLinks = false, linkLife = 3600, resumable = false, order = 0, oneDoor = false, linkBase = '', tells = false, blind = false, keepHalf = false;

class Refusal extends Error {
    constructor(status, code, message, details) { super(message); this.status = status; this.code = code; this.details = details; }
}
const reply = (res, status, headers, body) => { res.writeHead(status, Object.assign({ 'Content-Length': Buffer.byteLength(body) }, headers)); res.end(body); };
const json = (res, value) => reply(res, 200, { 'Content-Type': 'application/json' }, JSON.stringify(value));
const stamp = () => { clock = Math.max(clock + 1, Math.floor(Date.now() / 1000)); return clock; };
const sums = new WeakMap();         // each body is summed once
const md5 = (data) => { if (!sums.has(data)) sums.set(data, crypto.createHash('md5').update(data).digest('hex')); return sums.get(data); };
const etagOf = (data) => `"${md5(data)}"`;
const put = (map, key, data) => map.set(key, { data, time: stamp(), etag: etagOf(data) + '' });
const encode = (p) => encodeURIComponent(p).replace(/[!'()*]/g, (c) => '%' + c.charCodeAt(0).toString(16).toUpperCase()).replace(/%2F/g, '/');

function decodePath(text) {             // an address must say a path in one way only
    const p = decodeURIComponent(text);
    if (encode(p) !== text) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'the path is not encoded as it should be: ' + text);
    if (p.split('/').some((s) => s === '.' || s === '..')) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'dots in the path');
    return p;
}

//-- who is it ---------------------------------------------------------------------------------------------------------------

function authorize(req) {
    const h = req.headers.authorization || '';
    const bearer = /^Bearer ([^ ]+)$/.exec(h), basic = /^Basic ([A-Za-z0-9+/]+=*)$/.exec(h);
    if (open) { if (h) { wrong.push('a login that nobody asked for'); } return; }
    if (bearer && (bearer[1] === PAT || tokens.get(bearer[1]) > Date.now())) return;
    if (basic && Buffer.from(basic[1], 'base64').toString() === `${USER}:${PASSWORD}`) return;
    throw new Refusal(401, bearer || basic ? 'UNAUTHENTICATED' : '', bearer ? 'Invalid access token: ' + bearer[1] : 'Credential was not sent or was of an unsupported type for this API.');
}

function oidc(req, res, body) {
    const fail = (status, error, text) => reply(res, status, { 'Content-Type': 'application/json' }, JSON.stringify({ error, error_description: text }));
    const form = new URLSearchParams(body.toString()), m = /^Basic (.+)$/.exec(req.headers.authorization || '');
    if (req.headers['content-type'] !== 'application/x-www-form-urlencoded' || form.get('grant_type') !== 'client_credentials' || form.get('scope') !== 'all-apis') return fail(400, 'invalid_request', 'wrong form');
    if (!m || Buffer.from(m[1], 'base64').toString() !== `${ID}:${SECRET}`) return fail(401, 'invalid_client', 'Client authentication failed: ' + (m ? Buffer.from(m[1], 'base64').toString() : ''));
    const token = 'eyJ' + crypto.randomBytes(40).toString('base64url');
    tokens.set(token, Date.now() + 1000 * tokenLife);
    return json(res, { access_token: token, scope: 'all-apis', token_type: 'Bearer', expires_in: tokenLife });
}

//-- addresses of the cloud --------------------------------------------------------------------------------------------------

const mac = (o) => crypto.createHmac('sha256', secret).update([o.key, o.op, o.upload || '', o.part || '', o.exp].join('\n')).digest('hex');
function link(o, life) {
    o.exp = Math.floor(Date.now() / 1000) + (life || linkLife);
    const q = new URLSearchParams({ op: o.op, upload: o.upload || '', part: o.part || '', exp: o.exp, [o.op === 'stream' ? 'upload_id' : 'X-Amz-Signature']: mac(o) });
    if (o.op !== 'stream') signed.write(q.get('X-Amz-Signature') + '\n');
    return `${linkBase}/${encodeURIComponent(o.key)}?${q}`;
}
const NEEDED = [{ name: 'x-fake-needed', value: 'yes, all of it' }];
const xml = (res, status, code, message, detail) => {         // the Data Lake has JSON of its own
    const at = tells ? res.req.url.replace(/&/g, '&amp;') : '', signature = (/(?:Signature|upload_id)=([0-9a-f]+)/.exec(at) || ['', ''])[1];
    if (tells) message = [`${message}: ${at}`, `${message}: ${signature} of ${at}`, `${signature} is wrong`][tells++ % 3];
    if (cloudKind === 'adls') return reply(res, status, { 'Content-Type': 'application/json;charset=utf-8', 'x-ms-error-code': code }, JSON.stringify({ error: { code, message, detail: detail ? { AuthenticationErrorDetail: detail } : undefined } }));
    return reply(res, status, { 'Content-Type': 'application/xml' }, `<?xml version="1.0"?><Error><Code>${code}</Code><Message>${message}</Message>` +
        `${detail ? `<AuthenticationErrorDetail>${detail}</AuthenticationErrorDetail>` : ''}<SignatureProvided>${signature}</SignatureProvided><StringToSign>GET X-Amz-Signature=hidden ${at}</StringToSign></Error>`);
};

function mapOf(key) { return key.startsWith('/Volumes/') ? files : key.startsWith('run:') ? runFiles : artifacts; }

function serveCloud(req, res, body) {
    const url = new URL(req.url, cloudBase), q = url.searchParams, key = decodeURIComponent(url.pathname.slice(1)), op = q.get('op');
    if (req.headers.authorization || req.headers.cookie) { wrong.push('a login was sent to the cloud'); return xml(res, 400, 'InvalidArgument', 'Only one auth mechanism allowed'); }
    const o = { key, op, upload: q.get('upload'), part: q.get('part'), exp: q.get('exp') };
    if (mac(o) !== q.get(op === 'stream' ? 'upload_id' : 'X-Amz-Signature')) { wrong.push('a signature is wrong: ' + req.url); return xml(res, 403, 'SignatureDoesNotMatch', 'The request signature does not match'); }
    const late = Number(o.exp) < Date.now() / 1000;
    if (late && cloudKind === 'gcp') return xml(res, 400, 'ExpiredToken', 'The provided token has expired.');
    if (late) return cloudKind === 'azure' || cloudKind === 'adls' ? xml(res, 403, 'AuthenticationFailed', 'Server failed to authenticate the request.', 'Signature not valid in the specified time frame') : xml(res, 403, 'AccessDenied', 'Request has expired');
    if (req.headers['x-fake-needed'] !== 'yes, all of it' && !key.startsWith('proxy:')) return xml(res, 403, 'AccessDenied', 'There were headers present in the request which were not signed');
    const map = mapOf(key), name = key.replace(/^(run|proxy):/, ''), there = map.get(name), u = uploads.get(o.upload), comp = q.get('comp'), action = q.get('action');
    if (op === 'get') {
        if (req.method !== 'GET') return xml(res, 405, 'MethodNotAllowed', req.method);
        if (!there) return xml(res, 404, 'NoSuchKey', 'The specified key does not exist.');
        return send(req, res, there, { ETag: there.etag });
    }
    if (op === 'abort') {
        if (req.method !== 'DELETE') return xml(res, 405, 'MethodNotAllowed', req.method);
        if (!u) return xml(res, 404, 'NoSuchUpload', 'The specified upload does not exist.');
        uploads.delete(o.upload);
        return reply(res, 200, {}, '');
    }
    if (op === 'part') {
        if (!u || u.key !== key) return xml(res, 404, 'NoSuchUpload', 'The specified upload does not exist.');
        if (req.method !== 'PUT') return xml(res, 405, 'MethodNotAllowed', req.method);
        u.parts.set(Number(o.part), body);
        return reply(res, 200, { ETag: req.fault && req.fault.etag || etagOf(body) }, '');
    }
    if (op === 'stream') return serveStream(req, res, u, body);
    if (op !== 'put') return xml(res, 400, 'InvalidArgument', op);
    if (cloudKind === 'azure' && key.startsWith('run:')) {
        const blocks = uploads.get('blocks ' + key) || new Map();
        if (comp === 'block') {
            if (Buffer.from(q.get('blockid') || '', 'base64').toString('base64') !== q.get('blockid') || [...blocks.keys()].some((b) => b.length !== q.get('blockid').length)) return xml(res, 400, 'InvalidBlobOrBlock', 'wrong block id');
            blocks.set(q.get('blockid'), body);
            uploads.set('blocks ' + key, blocks);
            return reply(res, 201, {}, '');
        }
        if (comp === 'blocklist') {
            const ids = [...body.toString().matchAll(/<Uncommitted>([^<]+)<\/Uncommitted>/g)].map((m) => m[1]);
            if (!/^<\?xml version="1\.0" encoding="utf-8"\?><BlockList>(<Uncommitted>[^<]+<\/Uncommitted>)+<\/BlockList>$/.test(body.toString()) || ids.some((i) => !blocks.has(i))) return xml(res, 400, 'InvalidBlockList', 'The specified block list is invalid.');
            put(map, name, Buffer.concat(ids.map((i) => blocks.get(i))));
            uploads.delete('blocks ' + key);
            return reply(res, 201, {}, '');
        }
        if (req.headers['x-ms-blob-type'] !== 'BlockBlob') return xml(res, 400, 'MissingRequiredHeader', 'x-ms-blob-type');
        put(map, name, body);
        return reply(res, 201, {}, '');
    }
    if (cloudKind === 'adls') {
        if (req.method === 'PUT' && q.get('resource') === 'file') {         // there at once, without bytes
            if (req.headers['if-none-match'] === '*' && there) return xml(res, 409, 'PathAlreadyExists', 'The specified path already exists.');
            uploads.set('adls ' + key, Buffer.alloc(0));
            put(map, name, Buffer.alloc(0));
            return reply(res, 201, {}, '');
        }
        const so = uploads.get('adls ' + key);
        if (!so) return xml(res, 404, 'PathNotFound', 'The specified path does not exist.');
        if (req.method === 'PATCH' && action === 'append' && Number(q.get('position')) === so.length) { uploads.set('adls ' + key, Buffer.concat([so, body])); return reply(res, 202, {}, ''); }
        if (req.method === 'PATCH' && action === 'flush' && Number(q.get('position')) === so.length) { put(map, name, so); uploads.delete('adls ' + key); return reply(res, 200, {}, ''); }
        return xml(res, 400, 'InvalidFlushPosition', 'wrong');
    }
    if (req.method !== 'PUT' || comp) return xml(res, 405, 'MethodNotAllowed', req.method);
    put(map, name, body);
    return reply(res, 200, { ETag: etagOf(body) }, '');
}

// A resumable upload of Google's: bytes in their order, in multiples of 256 KiB but for the last; 308 and Range until all are there.
// What breaks off is kept as far as whole multiples go, and a cloud may keep less than it was sent (keep_half).
function serveStream(req, res, u, body) {
    if (!u || !u.stream) return xml(res, 404, 'NotFound', 'The upload session does not exist.');
    if (req.method === 'DELETE') { for (const [k, v] of uploads) if (v === u) uploads.delete(k); return reply(res, 499, {}, ''); }
    const m = /^bytes (?:(\d+)-(\d+)|\*)\/(\d+|\*)$/.exec(req.headers['content-range'] || ''), GRAIN = 256 << 10;
    if (req.method !== 'PUT' || !m) { wrong.push('a stream without Content-Range'); return xml(res, 400, 'InvalidArgument', 'Content-Range'); }
    if (u.finished) return reply(res, 200, { 'Content-Type': 'application/json' }, '{}');
    const total = m[3] === '*' ? -1 : Number(m[3]), from = Number(m[1] || 0), left = total >= 0 && m[1] !== undefined && Number(m[2]) === total - 1;
    if (m[1] !== undefined) {
        if (from !== u.size) return xml(res, 400, 'InvalidArgument', `it begins at ${from}, and there are ${u.size}`);
        if (!req.partial && (body.length !== Number(m[2]) - from + 1 || (!left && body.length % GRAIN !== 0))) { wrong.push('a piece of ' + body.length); return xml(res, 400, 'InvalidArgument', 'its length'); }
        const kept = req.partial || (keepHalf && body.length > GRAIN && !left) ? Math.floor(body.length / (req.partial ? 1 : 2) / GRAIN) * GRAIN : body.length;
        u.pieces.push(body.subarray(0, kept));
        u.size += kept;
    } else if (body.length > 0) { wrong.push('a body with a question'); return xml(res, 400, 'InvalidArgument', 'a body'); }
    if (total >= 0 && u.size === total) {
        if (!u.overwrite && files.has(u.key)) return xml(res, 412, 'PreconditionFailed', 'At least one of the pre-conditions you specified did not hold.');
        makeFolders(path.posix.dirname(u.key));
        put(files, u.key, Buffer.concat(u.pieces));
        u.pieces = [];
        u.finished = true;
        return reply(res, 200, { 'Content-Type': 'application/json' }, '{}');
    }
    return reply(res, 308, u.size > 0 ? { Range: `bytes=0-${u.size - 1}` } : {}, '');
}

function send(req, res, f, headers) {           // with ranges and conditions
    const since = req.headers['if-unmodified-since'], m = /^bytes=(\d+)-(\d+)$/.exec(req.headers.range || '');
    headers = Object.assign({ 'Last-Modified': new Date(f.time * 1000).toUTCString(), 'Content-Type': 'application/octet-stream' }, headers);
    if (since && !(f.time * 1000 <= Date.parse(since))) return reply(res, 412, {}, req.url.startsWith('/api') ? JSON.stringify({ error_code: 'FAILED_PRECONDITION', message: 'modified' }) : '');
    if (!m) { res.writeHead(200, Object.assign({ 'Content-Length': f.data.length }, headers)); return res.end(req.method === 'HEAD' ? undefined : f.data); }
    const from = Number(m[1]), to = Math.min(Number(m[2]), f.data.length - 1);
    if (from >= f.data.length) return reply(res, 416, { 'Content-Range': `bytes */${f.data.length}` }, '');
    res.writeHead(206, Object.assign({ 'Content-Length': to - from + 1, 'Content-Range': `bytes ${from}-${to}/${f.data.length}` }, headers));
    return res.end(f.data.subarray(from, to + 1));
}

function join(u, list, atMost) {                // {"part_number","etag"} in order
    if (!Array.isArray(list) || list.length === 0) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'no parts');
    list.forEach((p, i) => {
        const have = u.parts.get(p.part_number);
        if (p.part_number !== i + 1 || (atMost && p.part_number > atMost)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'parts out of order');
        if (!have || p.etag !== etagOf(have)) throw new Refusal(404, 'NOT_FOUND', 'a part is not there, or is another');
        if (i + 1 < list.length && have.length < MIN_PART) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'a part is too small');
    });
    return Buffer.concat(list.map((p) => u.parts.get(p.part_number)));
}
function keys(o, allowed, required) {
    for (const k of Object.keys(o)) if (!allowed.includes(k)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'unknown field ' + k);
    for (const k of required || allowed) if (o[k] === undefined) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'Missing value for required parameter ' + k);
}
function checkQuery(q, allowed) { for (const k of q.keys()) if (!allowed.includes(k)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'unknown parameter ' + k); }

//-- the Files API -----------------------------------------------------------------------------------------------------------

function checkVolume(p) {
    if (p !== VOLUME && !p.startsWith(VOLUME + '/')) throw new Refusal(404, 'NOT_FOUND', `Volume '${p.split('/').slice(2, 5).join('.')}' does not exist.`);
    if (/[\x00-\x1f\x7f]/.test(p)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'control characters');
}
function makeFolders(p) { while (p.length > VOLUME.length) { if (files.has(p)) throw new Refusal(409, 'ALREADY_EXISTS', 'a file is in the way'); folders.add(p); p = path.posix.dirname(p); } }
function checkFolder(p) {
    if (needFolders && !folders.has(path.posix.dirname(p))) throw new Refusal(404, 'NOT_FOUND', 'The parent directory does not exist.');
}

function checkNew(p, overwrite) {
    if (folders.has(p)) throw new Refusal(409, 'ALREADY_EXISTS', 'The path is a directory.');
    if (!overwrite && files.has(p)) throw new Refusal(409, 'ALREADY_EXISTS', 'The file being created already exists.');
}
const session = (u, p) => { if (!u || u.key !== p) throw new Refusal(404, 'NOT_FOUND', 'The upload session does not exist.'); return u; };

function fsApi(req, res, url, body) {
    const q = url.searchParams, m = /^\/api\/2\.0\/fs\/(files|directories)(\/.*)$/.exec(url.pathname);
    if (!m) {
        const o = JSON.parse(body.toString()), part = url.pathname === '/api/2.0/fs/create-upload-part-urls';
        if (req.method === 'POST' && url.pathname === '/api/2.0/fs/create-resumable-upload-url') {
            keys(o, ['path', 'session_token']);
            const u = session(uploads.get(o.session_token), o.path);
            if (noLinks) throw new Refusal(403, 'PERMISSION_DENIED', 'Presigned URLs API is not enabled', [{ reason: 'FILES_API_API_IS_NOT_ENABLED' }]);
            if (!u.stream) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'session_token');
            return json(res, { resumable_upload_url: { url: link({ key: u.key, op: 'stream', upload: o.session_token }, 7 * 86400), headers: NEEDED } });
        }
        if (req.method !== 'POST' || (!part && url.pathname !== '/api/2.0/fs/create-abort-upload-url')) throw new Refusal(404, 'ENDPOINT_NOT_FOUND', 'No API found');
        if (req.headers['content-type'] !== 'application/json') throw new Refusal(400, 'MALFORMED_REQUEST', 'no JSON');
        keys(o, part ? ['path', 'session_token', 'start_part_number', 'count', 'expire_time'] : ['path', 'session_token', 'expire_time']);
        const u = session(uploads.get(o.session_token), o.path), left = Date.parse(o.expire_time) - Date.now();
        if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(o.expire_time) || !(left > 0 && left < 7 * 864e5)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'expire_time');
        if (noLinks) throw new Refusal(403, 'PERMISSION_DENIED', 'Presigned URLs API is not enabled', [{ reason: 'FILES_API_API_IS_NOT_ENABLED' }]);
        if (!part) return json(res, { abort_upload_url: { url: link({ key: u.key, op: 'abort', upload: o.session_token }), headers: NEEDED } });
        if (!Number.isInteger(o.start_part_number) || o.start_part_number < 1 || o.start_part_number > 10000 || o.count !== 1) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'part numbers');
        return json(res, { upload_part_urls: [{ url: link({ key: u.key, op: 'part', upload: o.session_token, part: o.start_part_number }), part_number: o.start_part_number, headers: NEEDED }] });
    }
    const p = decodePath(m[2]), f = files.get(p);
    checkVolume(p);
    if (m[1] === 'directories') {
        if (req.method === 'PUT') { checkQuery(q, []); makeFolders(p); return reply(res, 204, {}, ''); }
        if (req.method === 'DELETE') {
            if (!folders.has(p) || p === VOLUME) throw new Refusal(404, 'NOT_FOUND', 'The directory being accessed is not found.');
            if ([...folders, ...files.keys()].some((n) => n.startsWith(p + '/'))) throw new Refusal(409, 'FAILED_PRECONDITION', 'The directory is not empty.');
            folders.delete(p);
            return reply(res, 204, {}, '');
        }
        if (req.method !== 'GET') throw new Refusal(405, '', req.method);
        checkQuery(q, ['page_token', 'page_size']);
        if (!folders.has(p)) throw new Refusal(404, 'NOT_FOUND', 'The directory being accessed is not found.');
        const all = [...[...folders].filter((d) => path.posix.dirname(d) === p && d !== p).map((d) => ({ path: d, name: path.posix.basename(d), is_directory: true })),
            ...[...files].filter(([n]) => path.posix.dirname(n) === p).map(([n, v]) => ({ path: n, name: path.posix.basename(n), is_directory: false, file_size: v.data.length, last_modified: v.time * 1000 }))];
        const from = q.has('page_token') ? Number(Buffer.from(q.get('page_token'), 'base64url').toString()) : 0;
        if (!(from >= 0)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'page_token');
        const out = { contents: all.slice(from, from + page) };
        if (from + page < all.length) out.next_page_token = Buffer.from(String(from + page)).toString('base64url');
        return json(res, out);
    }
    if (req.method === 'PUT') {
        checkQuery(q, ['overwrite']);
        if (!['true', 'false'].includes(q.get('overwrite')) || req.headers['content-type'] !== 'application/octet-stream') throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'overwrite or type');
        checkNew(p, q.get('overwrite') === 'true');
        checkFolder(p);
        makeFolders(path.posix.dirname(p));
        put(files, p, body);
        return reply(res, 204, {}, '');
    }
    if (req.method === 'POST') {
        const action = q.get('action');
        if (action === 'initiate-upload') {
            checkQuery(q, ['action', 'overwrite']);
            checkNew(p, q.get('overwrite') === 'true');
            checkFolder(p);
            const token = 'session-' + crypto.randomBytes(200).toString('base64url');
            if (resumable) {
                uploads.set(token, { key: p, stream: true, size: 0, pieces: [], overwrite: q.get('overwrite') === 'true' });
                return json(res, { resumable_upload: { session_token: token } });
            }
            uploads.set(token, { key: p, parts: new Map(), overwrite: q.get('overwrite') === 'true' });
            return json(res, { multipart_upload: { session_token: token } });
        }
        checkQuery(q, ['action', 'upload_type', 'session_token']);
        if (action !== 'complete-upload' || q.get('upload_type') !== 'multipart') throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'action');
        const u = session(uploads.get(q.get('session_token')), p), o = JSON.parse(body.toString());
        keys(o, ['parts']);
        const data = join(u, o.parts);
        checkNew(p, u.overwrite);
        makeFolders(path.posix.dirname(p));
        put(files, p, data);
        uploads.delete(q.get('session_token'));
        return reply(res, 200, { 'Content-Type': 'application/json' }, '{}');
    }
    if (!f) throw new Refusal(404, 'NOT_FOUND', 'The file being accessed is not found.');
    if (req.method === 'DELETE') { files.delete(p); return reply(res, 204, {}, ''); }
    return send(req, res, f);
}

//-- MLflow: runs, and Databricks' artifacts -----------------------------------------------------------------------------------

const where = (run) => open || tokens.oss ? `mlflow-artifacts:/${runs.get(run)}/${run}/artifacts` : `dbfs:/databricks/mlflow-tracking/${runs.get(run)}/${run}/artifacts`;
const info = (run) => ({ run: { info: { run_id: run, run_uuid: run, experiment_id: runs.get(run), status: 'RUNNING', artifact_uri: where(run) }, data: {} } });
const TYPES = { aws: 'AWS_PRESIGNED_URL', azure: 'AZURE_SAS_URI', gcp: 'GCP_SIGNED_URL', adls: 'AZURE_ADLS_GEN2_SAS_URI' };
const needRun = (id) => { if (!runs.has(id)) throw new Refusal(404, 'RESOURCE_DOES_NOT_EXIST', `Run '${id}' not found`); return id; };
const credential = (run, p, o) => ({ run_id: run, path: p, signed_uri: link(Object.assign({ key: `run:${run}/${p}` }, o)), headers: NEEDED, type: TYPES[cloudKind] });

function mlflowApi(req, res, url, body) {
    const q = url.searchParams, call = url.pathname.slice('/api/2.0/mlflow/'.length), o = req.method === 'POST' ? JSON.parse(body.toString()) : {};
    if (req.method === 'POST' && req.headers['content-type'] !== 'application/json') throw new Refusal(400, 'BAD_REQUEST', 'no JSON');
    switch (`${req.method} ${call}`) {
        case 'GET experiments/get-by-name': {
            const found = [...experiments].find(([, n]) => n === q.get('experiment_name'));
            if (!found) throw new Refusal(404, 'RESOURCE_DOES_NOT_EXIST', `Could not find experiment with name '${q.get('experiment_name')}'`);
            return json(res, { experiment: { experiment_id: found[0], name: found[1], lifecycle_stage: 'active' } });
        }
        case 'POST experiments/create': {
            keys(o, ['name']);
            if ([...experiments.values()].includes(o.name)) throw new Refusal(400, 'RESOURCE_ALREADY_EXISTS', `Experiment(name=${o.name}) already exists.`);
            experiments.set(String(100 + experiments.size), o.name);
            return json(res, { experiment_id: String(99 + experiments.size) });
        }
        case 'POST runs/create': {
            keys(o, ['experiment_id', 'start_time']);
            if (!experiments.has(o.experiment_id) || !(Math.abs(o.start_time - Date.now()) < 60000)) throw new Refusal(404, 'RESOURCE_DOES_NOT_EXIST', `No Experiment with id=${o.experiment_id} exists`);
            const id = crypto.randomBytes(16).toString('hex');
            runs.set(id, o.experiment_id);
            return json(res, info(id));
        }
        case 'GET runs/get': return json(res, info(needRun(q.get('run_id'))));
        case 'POST artifacts/credentials-for-write': case 'POST artifacts/credentials-for-read':
            keys(o, ['run_id', 'path']);
            if (!Array.isArray(o.path) || o.path.length !== 1 || /(^|\/)(\.\.?)?(\/|$)/.test(o.path[0])) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'path');
            return json(res, { credential_infos: [credential(needRun(o.run_id), o.path[0], { op: call.endsWith('write') ? 'put' : 'get' })] });
        case 'POST artifacts/create-multipart-upload': {
            keys(o, ['run_id', 'path', 'num_parts']);
            if (cloudKind !== 'aws' || !(o.num_parts >= 1 && o.num_parts <= 10000)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'num_parts');
            const id = 'mp~' + crypto.randomBytes(20).toString('base64');
            uploads.set(id, { key: `run:${needRun(o.run_id)}/${o.path}`, parts: new Map(), most: o.num_parts });
            return json(res, { upload_id: id, upload_credential_infos: Array.from({ length: o.num_parts }, (_, i) => credential(o.run_id, o.path, { op: 'part', upload: id, part: i + 1 })), abort_credential_info: credential(o.run_id, o.path, { op: 'abort', upload: id }) });
        }
        case 'GET artifacts/get-presigned-upload-part-url':
            checkQuery(q, ['run_id', 'path', 'upload_id', 'part_number']);
            if (!blind && !uploads.has(q.get('upload_id'))) throw new Refusal(404, 'NOT_FOUND', 'no such upload');
            return json(res, { upload_credential_info: credential(needRun(q.get('run_id')), q.get('path'), { op: 'part', upload: q.get('upload_id'), part: q.get('part_number') }) });
        case 'POST artifacts/complete-multipart-upload': {
            keys(o, ['run_id', 'path', 'upload_id', 'part_etags']);
            const u = session(uploads.get(o.upload_id), `run:${o.run_id}/${o.path}`);
            put(runFiles, u.key.slice(4), join(u, o.part_etags, u.most));
            uploads.delete(o.upload_id);
            return json(res, {});
        }
        case 'GET artifacts/list': {
            checkQuery(q, ['run_id', 'path', 'page_token']);
            const run = needRun(q.get('run_id')), at = q.get('path') || '';
            const own = [...runFiles].filter(([n]) => n.startsWith(run + '/')).map(([n, v]) => [n.slice(run.length + 1), v]);
            const all = listing(own, at, at === '' ? '' : at + '/', true), from = Number(q.get('page_token') || 0);
            return json(res, Object.assign({ root_uri: where(run), files: all.slice(from, from + page) }, from + page < all.length ? { next_page_token: String(from + page) } : {}));
        }
        default: throw new Refusal(404, 'ENDPOINT_NOT_FOUND', 'No API found for ' + call);
    }
}

function listing(all, at, prefix, whole) {      // whole: paths, and a file is its own list
    const out = new Map();
    for (const [n, v] of all) {
        if (whole && n === at) out.set(n, { path: n, is_dir: false, file_size: v.data.length });
        if (!n.startsWith(prefix)) continue;
        const rest = n.slice(prefix.length), first = rest.split('/')[0], shown = whole ? prefix + first : first;
        if (rest.includes('/')) out.set(first, { path: shown, is_dir: true });
        else out.set(first, { path: shown, is_dir: false, file_size: order++ % 2 ? v.data.length : String(v.data.length) });
    }
    return [...out.values()];
}

//-- the proxy of an open source server ----------------------------------------------------------------------------------------

function safe(text) {                           // validate_path_is_safe of MLflow
    let p = text;
    for (;;) {
        const next = decodeURIComponent(p.replace(/%(?![0-9A-Fa-f]{2})/g, '%25'));
        if (next === p) break;
        p = next;
    }
    if (p.includes('#') || p.split('/').includes('..') || p.startsWith('/')) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'Invalid path');
    return p;
}
function proxyApi(req, res, url, body) {
    const m = /^\/api\/2\.0\/mlflow-artifacts\/(artifacts|mpu\/create|mpu\/complete|mpu\/abort)(?:\/(.*))?$/.exec(url.pathname), q = url.searchParams;
    if (!m) throw new Refusal(404, '', 'Not Found');
    if (m[1] === 'artifacts' && m[2] === undefined) {
        if (req.method !== 'GET') throw new Refusal(405, '', req.method);
        checkQuery(q, ['path']);
        const at = q.has('path') ? safe(q.get('path')) : '';
        return json(res, { files: listing([...artifacts], at, at === '' ? '' : at + '/', false) });
    }
    const p = safe(decodePath(m[2]));
    if (m[1] === 'artifacts') {
        if (req.method === 'PUT') {
            if (!req.headers['content-type']) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'no type');
            put(artifacts, p, body);
            return json(res, {});
        }
        if (req.method === 'DELETE') {          // folders too
            let some = false;
            for (const n of [...artifacts.keys()]) if (n === p || n.startsWith(p + '/')) { artifacts.delete(n); some = true; }
            if (!some) return reply(res, 500, { 'Content-Type': 'text/html' }, '<h1>Internal Server Error</h1>');
            return json(res, {});
        }
        const f = artifacts.get(p);
        if (!f) return reply(res, 500, { 'Content-Type': 'text/html' }, '<h1>Internal Server Error</h1>');
        res.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Disposition': 'attachment' });     // chunked, no length, no ranges
        res.write(f.data);
        return res.end();
    }
    const o = JSON.parse(body.toString());
    if (!mpu) throw new Refusal(501, 'NOT_IMPLEMENTED', 'Multipart upload is not supported for the current artifact repository');
    if (!o.path || o.path.includes('/')) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'path');
    const key = `proxy:${p}/${o.path}`;
    if (m[1] === 'mpu/create') {
        keys(o, ['path', 'num_parts']);
        const id = 'mpu-' + crypto.randomBytes(12).toString('hex');
        uploads.set(id, { key, parts: new Map() });
        return json(res, { upload_id: id, credentials: Array.from({ length: o.num_parts }, (_, i) => ({ url: link({ key, op: 'part', upload: id, part: i + 1 }), part_number: i + 1, headers: {} })) });
    }
    if (m[1] === 'mpu/abort') {
        keys(o, ['path', 'upload_id']);
        if (!uploads.delete(o.upload_id)) throw new Refusal(404, 'RESOURCE_DOES_NOT_EXIST', 'NoSuchUpload');
        return json(res, {});
    }
    keys(o, ['path', 'upload_id', 'parts']);
    const u = session(uploads.get(o.upload_id), key);
    o.parts.forEach((x) => { keys(x, ['part_number', 'etag', 'url']); if (!x.url.startsWith(linkBase)) throw new Refusal(400, 'INVALID_PARAMETER_VALUE', 'url'); });
    put(artifacts, `${p}/${o.path}`, join(u, o.parts));
    uploads.delete(o.upload_id);
    return json(res, {});
}

//-- the servers ---------------------------------------------------------------------------------------------------------------

function control(req, res, body) {
    if (req.method === 'POST') {
        const c = JSON.parse(body.toString());
        if (c.faults) faults = c.faults.map((f) => Object.assign({ times: 1 }, f));
        if (c.page !== undefined) page = c.page;
        if (c.token_life !== undefined) tokenLife = c.token_life;
        if (c.revoke) { const oss = tokens.oss; tokens.clear(); tokens.oss = oss; }
        if (c.open !== undefined) open = c.open;
        if (c.oss !== undefined) tokens.oss = c.oss;
        if (c.cloud) cloudKind = c.cloud;
        if (c.mpu !== undefined) mpu = c.mpu;
        if (c.need_folders !== undefined) needFolders = c.need_folders;
        if (c.no_links !== undefined) noLinks = c.no_links;
        if (c.link_life !== undefined) linkLife = c.link_life;
        if (c.resumable !== undefined) resumable = c.resumable;
        if (c.one_door !== undefined) oneDoor = c.one_door;
        if (c.corrupt) for (const map of [files, runFiles, artifacts]) if (map.has(c.corrupt)) map.get(c.corrupt).data[0] ^= 1;
        if (c.forget) uploads.clear();
        if (c.empty) for (const map of [files, runFiles, artifacts]) map.clear();
        if (c.keep_half !== undefined) keepHalf = c.keep_half;
        if (c.blind !== undefined) blind = c.blind;
        if (c.tell !== undefined) tells = c.tell ? 1 : false;
        if (c.clear) { requests = []; wrong = []; }
    }
    const left = [...uploads.values()].filter((u) => !u.finished), begun = (u) => Buffer.isBuffer(u) ? u.length > 0 : u instanceof Map ? u.size > 0 : u.parts ? u.parts.size > 0 : u.size > 0;
    return json(res, { requests, wrong, faults, uploads: left.length, files: files.size + runFiles.size + artifacts.size, runs: runs.size, started: left.filter(begun).length });
}

function serve(req, res, body) {
    const url = new URL(req.url, base), p = url.pathname;
    if (p === '/_control') return control(req, res, body);
    if (p === '/oidc/v1/token') return oidc(req, res, body);
    authorize(req);
    if (p.startsWith('/api/2.0/fs/')) return fsApi(req, res, url, body);
    if (p.startsWith('/api/2.0/mlflow/')) return mlflowApi(req, res, url, body);
    if (p.startsWith('/api/2.0/mlflow-artifacts/')) return proxyApi(req, res, url, body);
    throw new Refusal(404, 'ENDPOINT_NOT_FOUND', 'No API found for ' + p);
}

const listen = (ownMark, ownHandler) => http.createServer((req, res) => {
    const door = req.url.startsWith('/cloud/');
    if (door) req.url = req.url.slice('/cloud'.length);
    const mark = door ? 'CLOUD ' : ownMark, handler = door ? serveCloud : ownHandler;
    const line = `${mark}${req.method} ${req.url}`, chunks = [], own = req.url === '/_control';
    const fault = own ? undefined : faults.find((f) => f.times > 0 && new RegExp(f.match).test(line) && !(f.skip-- > 0));
    let got = 0, over = false;
    if (fault) fault.times--;
    req.fault = fault;
    if (!own) requests.push(line);
    const end = (partial) => {
        if (over) return;
        over = true;
        if (partial) {
            if (/[?&]op=stream&/.test(req.url)) { req.partial = true; serveStream(req, { writeHead() {}, end() {} }, uploads.get(new URL(req.url, base).searchParams.get('upload')), Buffer.concat(chunks)); }
            return req.socket.resetAndDestroy();
        }
        const whole = Buffer.concat(chunks), body = fault && fault.keep !== undefined ? whole.subarray(0, fault.keep) : whole, quiet = fault && (fault.lose || fault.hang), to = quiet ? { req, writeHead() {}, write() {}, end() {} } : res;
        try {
            if (!own && ['PUT', 'POST', 'PATCH'].includes(req.method) && req.headers['content-length'] === undefined && req.headers['transfer-encoding'] !== 'chunked') throw new Refusal(411, 'BAD_REQUEST', 'no Content-Length');
            if (fault && fault.status) throw new Refusal(fault.status, fault.code === undefined ? 'TEMPORARILY_UNAVAILABLE' : fault.code, fault.message || 'the test says so');
            linkBase = oneDoor ? `http://${req.headers.host}/cloud` : cloudBase;
            handler(req, to, body);
        } catch (e) {
            if (!(e instanceof Refusal)) { wrong.push(`${line}: ${e.stack}`); e = new Refusal(400, 'MALFORMED_REQUEST', e.message); }
            if (e.status === 400 || e.status === 411) wrong.push(`${line}: ${e.message}`);
            if (mark) xml(to, e.status, e.code, e.message);
            else reply(to, e.status, { 'Content-Type': 'application/json' }, req.method === 'HEAD' ? '' : JSON.stringify(Object.assign({ error_code: e.code || undefined, message: e.message }, e.details ? { details: e.details } : {})));
        }
        if (quiet && !fault.hang) req.socket.resetAndDestroy();
    };
    req.on('data', (c) => { chunks.push(c); got += c.length; if (fault && fault.drop !== undefined && got >= fault.drop) end(true); });
    req.on('end', () => end(false));
    req.on('error', () => { over = true; });
});
const cloud = listen('CLOUD ', serveCloud), server = listen('', serve);
cloud.keepAliveTimeout = server.keepAliveTimeout = 60000;
cloud.listen(0, '127.0.0.1', () => {
    cloudBase = `http://127.0.0.1:${cloud.address().port}`;
    server.listen(0, '127.0.0.1', () => {
        base = `http://127.0.0.1:${server.address().port}`;
        fs.writeFileSync(path.join(dir, 'env'), `FAKE_URL=${base}\nFAKE_TOKEN=${PAT}\nFAKE_CLIENT_ID=${ID}\nFAKE_CLIENT_SECRET=${SECRET}\nFAKE_USER=${USER}\nFAKE_PASSWORD=${PASSWORD}\n`);
        fs.writeFileSync(path.join(dir, 'port'), String(server.address().port));
    });
});
const parent = process.ppid;
setInterval(() => { if (process.ppid !== parent) process.exit(0); }, 500);
