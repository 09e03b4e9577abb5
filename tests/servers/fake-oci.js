// fake-oci.js: a stand-in for Oracle's object storage, with the standard library of node alone. It is strict: whatever its
// documentation does not allow is refused.
//
//     node fake-oci.js DIR             reads DIR/keys.json { "KEY ID": "public key in PEM" }, listens on 127.0.0.1 at a free port
//                                      and writes DIR/port when it does. Namespace "fakespace", buckets "bucket-one", "bucket-two",
//                                      and those whose names begin with "any-", which are made when they are asked for
//                                      DIR/machine, if it is there, makes it the metadata service of an instance too (/opc/v2/...:
//                                      cert.pem, key.pem, intermediate.pem) and the service that gives instances tokens (/v1/x509,
//                                      for certificates below DIR/machine/root.pem); DIR/tokens tells which it gave
//     POST /control  {"faults": [...], "clock": SECONDS, "page": N, "revoke": "KEY ID", "forget": true, "lifetime": SECONDS of a
//                    token, "withdraw": true (all tokens of instances)}
//     GET  /control  what it holds and has seen
//
// A fault: { "match": "regexp of 'METHOD TARGET'", "times": N, "skip": N, "do": WHAT, ... } where WHAT is
//     status (status, code, headers: refused before it is done)    drop (closed before it is done)
//     lost (done, and closed without a reply)                      cut (the reply's body ends in the middle)
//     damage (one bit of a download is another)                    header (name, value: a header of the reply is another)
//     stall (nothing happens any more)
//
// Checked: signatures (draft-cavage, rsa-sha256, by node's own crypto), which headers must be signed, 5 minutes of skew,
// x-content-sha256, certificates (chain, validity, fingerprint, tenancy), tokens' ends, Content-MD5, conditions, ranges, pages, part numbers, sizes and ETags, metadata names, names without dot segments.
//
// NOT proven against the real service, which nobody could ask: the codes of uploads that are gone (NoSuchUpload) and of parts that
// are too small (here UploadPartTooSmall at the commit), whether it takes a part's size for an error at all, the order of names that
// are not ASCII, throttling as it really happens, whatever else the service may want of an instance's certificate, resource principals' tokens, Archive tiers, encryption with own keys.
'use strict';
const http = require('http'), crypto = require('crypto'), fs = require('fs'), path = require('path');

const dir = process.argv[2];
const keys = new Map(Object.entries(JSON.parse(fs.readFileSync(path.join(dir, 'keys.json'), 'utf8'))));
const NS = 'fakespace', MIN_PART = 10 * 1024 * 1024, MAX_OBJECT = 50 * 1024 * 1024 * 1024;
const buckets = new Map([['bucket-one', { objects: new Map(), uploads: new Map() }], ['bucket-two', { objects: new Map(), uploads: new Map() }]]);
let faults = [], clock = 0, page = 1000, requests = 0, lifetime = 1200;
const ends = new Map();                     // of tokens of instances, in seconds since 1970
const seen = { unauthenticated: 0, federated: 0, namespace: 0, put: 0, get: 0, parts: 0, heads: 0, ranges: [], keys: {}, agents: {} };

const sums = new WeakMap();         // each body is summed once
const md5 = b => { if (!sums.has(b)) sums.set(b, crypto.createHash('md5').update(b).digest()); return sums.get(b); };
const sha256 = b => crypto.createHash('sha256').update(b).digest('base64');
class Refusal extends Error {
    constructor(status, code, message, headers) { super(message); this.status = status; this.code = code; this.headers = headers; }
}
const no = (status, code, message, headers) => { throw new Refusal(status, code, message, headers); };

//-- signatures --------------------------------------------------------------------

const bad = why => { seen.unauthenticated++; no(401, 'NotAuthenticated', process.env.FAKE_OCI_WHY ? why :
    'The required information to complete authentication was not provided or was incorrect.'); };

// What is signed, and by whom; keyOf: the public key of a key id.
function verify(req, body, need, keyOf) {
    const h = req.headers, text = h.authorization || '';
    if (!text.startsWith('Signature ')) bad('no Signature');
    const f = {};
    if (!/^([a-zA-Z]+="[^"]*")(,[a-zA-Z]+="[^"]*")*$/.test(text.slice(10))) bad('malformed');
    for (const m of text.slice(10).matchAll(/([a-zA-Z]+)="([^"]*)"/g)) f[m[1]] = m[2];
    if (f.version !== '1' || f.algorithm !== 'rsa-sha256' || !f.keyId || !f.signature) bad('version, algorithm, keyId or signature');
    const names = (f.headers || '').split(' ').map(n => n.toLowerCase());
    for (const n of need) if (!names.includes(n)) bad('not signed: ' + n);
    if (!names.includes('date') && !names.includes('x-date')) bad('no date is signed');
    const date = Date.parse(h[names.includes('x-date') ? 'x-date' : 'date']);
    if (!(Math.abs(date - (Date.now() + clock * 1000)) <= 300000)) bad('clock');
    const lines = names.map(n => n === '(request-target)' ? n + ': ' + req.method.toLowerCase() + ' ' + req.url
        : h[n] === undefined ? bad('absent: ' + n) : n + ': ' + h[n]);
    const key = keyOf(f.keyId);
    if (!key) bad('unknown key');
    if (!crypto.verify('RSA-SHA256', Buffer.from(lines.join('\n')), key, Buffer.from(f.signature, 'base64'))) bad('signature');
    if (names.includes('x-content-sha256') && h['x-content-sha256'] !== sha256(body)) bad('x-content-sha256');
    seen.keys[f.keyId.slice(0, 40)] = (seen.keys[f.keyId.slice(0, 40)] || 0) + 1;
}

const signedBody = ['content-length', 'content-type', 'x-content-sha256'];
const alive = id => !ends.has(id) || ends.get(id) > Date.now() / 1000 + clock;
function authenticate(req, body, streams) {
    const need = ['(request-target)', 'host'];
    if (['POST', 'PUT', 'PATCH'].includes(req.method) && !streams) need.push(...signedBody);
    verify(req, body, need, id => alive(id) ? keys.get(id) : undefined);
}

//-- instances -------------------------------------------------------------------------

const machine = name => fs.readFileSync(path.join(dir, 'machine', name));

function metadata(req) {
    if (req.method !== 'GET' || req.headers.authorization !== 'Bearer Oracle') no(401, 'Unauthorized', 'no Bearer Oracle');
    const what = req.url.slice('/opc/v2/'.length);
    if (what === 'instance/regionInfo')
        return [200, {}, { realmKey: 'oc1', realmDomainComponent: 'oraclecloud.com', regionKey: 'IAD', regionIdentifier: 'us-ashburn-1' }];
    if (!/^identity\/(cert|key|intermediate)\.pem$/.test(what)) no(404, 'NotFound', 'no such metadata');
    return [200, {}, machine(what.slice('identity/'.length))];
}

// A token for whoever holds the key of a certificate of ours: the request must be signed with it, and name its tenancy.
function federate(req, body) {
    const d = json(req, body), x509 = text => new crypto.X509Certificate(Buffer.from(text, 'base64'));
    let leaf, between, key;
    try { leaf = x509(d.certificate); between = d.intermediateCertificates.map(x509); } catch { no(400, 'InvalidParameter', 'a certificate is none'); }
    try { key = crypto.createPublicKey({ key: Buffer.from(d.publicKey, 'base64'), format: 'der', type: 'spki' }); } catch { no(400, 'InvalidParameter', 'publicKey is none'); }
    if (key.asymmetricKeyType !== 'rsa' || key.asymmetricKeyDetails.modulusLength < 2048 || key.equals(leaf.publicKey)) no(400, 'InvalidParameter', 'publicKey is not fit');
    const tenancy = (/^OU=opc-tenant:(.+)$/m.exec(leaf.subject) || [])[1];
    if (!tenancy) bad('no tenancy');
    verify(req, body, ['(request-target)', ...signedBody], id => id === `${tenancy}/fed-x509/${leaf.fingerprint}` ? leaf.publicKey : undefined);
    const chain = [leaf, ...between, new crypto.X509Certificate(machine('root.pem'))], now = Date.now() + clock * 1000;
    for (let i = 0; i + 1 < chain.length; i++)
        if (!chain[i].checkIssued(chain[i + 1]) || !chain[i].verify(chain[i + 1].publicKey)) no(401, 'NotAuthenticated', 'The certificate is not trusted');
    if (now < Date.parse(leaf.validFrom) || now > Date.parse(leaf.validTo)) no(401, 'NotAuthenticated', 'The certificate has run out');
    const part = o => Buffer.from(JSON.stringify(o)).toString('base64url'), exp = Math.floor(now / 1000) + lifetime;
    const token = `${part({ alg: 'RS256' })}.${part({ sub: 'instance', exp, jti: crypto.randomUUID() })}.${crypto.randomBytes(64).toString('base64url')}`;
    keys.set('ST$' + token, key);
    ends.set('ST$' + token, exp);
    seen.federated++;
    fs.appendFileSync(path.join(dir, 'tokens'), token + '\n');
    return [200, {}, { token }];
}

//-- operations ----------------------------------------------------------------------

function decode(text) {
    let name;
    try { name = decodeURIComponent(text); } catch { no(400, 'InvalidParameter', 'damaged percent escape'); }
    return name;
}
function objectName(text) {
    if (text.split('/').some(s => s === '' || s === '.' || s === '..')) no(400, 'InvalidObjectName', 'a level that gateways resolve');
    const name = decode(text);
    if (name === '' || Buffer.byteLength(name) > 1024 || /[\0\r\n]/.test(name)) no(400, 'InvalidObjectName', 'the name is not allowed');
    return name;
}
function condition(req, bucket, name) {
    const none = req.headers['if-none-match'], match = req.headers['if-match'], there = bucket.objects.get(name);
    if (none !== undefined && none !== '*') no(400, 'InvalidParameter', 'If-None-Match must be *');
    if (none === '*' && there) no(412, 'IfNoneMatchFailed', "The If-None-Match header was specified with '*' and the object exists");
    if (match !== undefined && (!there || there.etag !== match)) no(412, 'IfMatchFailed', 'The If-Match header does not match');
}
function checkBody(req, body) {
    const want = req.headers['content-md5'];
    if (req.headers['content-length'] === undefined) no(411, 'MissingContentLength', 'Content-Length is required');
    if (want !== undefined && Buffer.from(want, 'base64').length !== 16) no(400, 'InvalidContentMD5', 'Content-MD5 is none');
    if (want !== undefined && want !== md5(body).toString('base64')) no(400, 'UnmatchedContentMD5', 'The Content-MD5 does not match');
}
function number(query, name, least, most, otherwise) {
    const v = query.get(name);
    if (v === null) return otherwise;
    if (!/^[0-9]+$/.test(v) || +v < least || +v > most) no(400, 'InvalidParameter', name + ' is out of range');
    return +v;
}
function known(query, names) {
    for (const n of query.keys()) if (!names.includes(n)) no(400, 'InvalidParameter', 'unknown parameter ' + n);
}
const stamp = () => new Date(Date.now() + clock * 1000);
function metaOf(headers) {
    const meta = {};
    for (const [n, v] of Object.entries(headers)) if (n.startsWith('opc-meta-')) meta[n] = v;
    return meta;
}
function describe(o) {
    const h = { etag: o.etag, 'last-modified': o.modified.toUTCString(), 'content-type': o.type, 'accept-ranges': 'bytes', ...o.meta };
    if (o.multi) h['opc-multipart-md5'] = o.multi; else h['content-md5'] = o.md5;
    return h;
}

function onObjects(req, bucket, query) {
    known(query, ['prefix', 'start', 'end', 'limit', 'delimiter', 'fields', 'startAfter']);
    const limit = Math.min(number(query, 'limit', 1, 1000, 1000), page), prefix = query.get('prefix') || '', start = query.get('start') || '';
    const fields = (query.get('fields') || 'name').split(',');
    for (const f of fields) {
        if (!['name', 'size', 'etag', 'md5', 'timeCreated', 'timeModified', 'storageTier', 'archivalState'].includes(f))
            no(400, 'InvalidParameter', 'unknown field ' + f);
    }
    const order = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
    const names = [...bucket.objects.keys()].filter(n => n.startsWith(prefix) && order(n, start) >= 0).sort(order);
    const objects = names.slice(0, limit).map(n => {
        const o = bucket.objects.get(n), e = { name: n };
        if (fields.includes('size')) e.size = o.data.length;
        if (fields.includes('etag')) e.etag = o.etag;
        if (fields.includes('md5')) e.md5 = o.multi || o.md5;
        if (fields.includes('timeModified')) e.timeModified = o.modified.toISOString();
        if (fields.includes('timeCreated')) e.timeCreated = o.modified.toISOString();
        return e;
    });
    const reply = { objects };
    if (names.length > limit) reply.nextStartWith = names[limit];
    return [200, {}, reply];
}

function onObject(req, bucket, name, body) {
    if (req.method === 'PUT') {
        seen.put++;
        checkBody(req, body);
        condition(req, bucket, name);
        const o = { data: body, etag: crypto.randomUUID(), modified: stamp(), md5: md5(body).toString('base64'), meta: metaOf(req.headers),
                    type: req.headers['content-type'] || 'application/octet-stream' };
        bucket.objects.set(name, o);
        return [200, { etag: o.etag, 'opc-content-md5': o.md5, 'last-modified': o.modified.toUTCString() }];
    }
    const o = bucket.objects.get(name);
    if (!o) no(404, 'ObjectNotFound', `The object '${name}' was not found in the bucket`);
    condition(req, bucket, name);
    if (req.method === 'DELETE') { bucket.objects.delete(name); return [204, {}]; }
    if (req.method === 'HEAD') { seen.heads++; return [200, { ...describe(o), 'content-length': o.data.length }]; }
    if (req.method !== 'GET') no(405, 'MethodNotAllowed', 'this method is not allowed here');
    seen.get++;
    const range = req.headers.range;
    if (range === undefined) return [200, describe(o), o.data];
    const m = /^bytes=([0-9]+)-([0-9]*)$/.exec(range);
    if (!m || +m[1] >= o.data.length || (m[2] !== '' && +m[2] < +m[1])) no(416, 'InvalidRange', 'The range cannot be satisfied');
    const end = m[2] === '' ? o.data.length - 1 : Math.min(+m[2], o.data.length - 1);
    seen.ranges.push(`${m[1]}-${end}`);
    return [206, { ...describe(o), 'content-range': `bytes ${m[1]}-${end}/${o.data.length}` }, o.data.subarray(+m[1], end + 1)];
}

function json(req, body) {
    if ((req.headers['content-type'] || '').split(';')[0] !== 'application/json') no(400, 'InvalidParameter', 'Content-Type must be application/json');
    try { return JSON.parse(body); } catch { no(400, 'InvalidParameter', 'the body is no JSON'); }
}
function paged(all, query) {
    const limit = Math.min(number(query, 'limit', 1, 1000, 1000), page), from = number(query, 'page', 0, 1e9, 0);
    const headers = from + limit < all.length ? { 'opc-next-page': String(from + limit) } : {};
    return [200, headers, all.slice(from, from + limit)];
}

function onUploads(req, bucket, bucketName, query, body) {
    if (req.method === 'GET') {
        known(query, ['limit', 'page']);
        return paged([...bucket.uploads.values()].map(u => ({ namespace: NS, bucket: bucketName, object: u.object, uploadId: u.id,
                                                              timeCreated: u.created.toISOString() })), query);
    }
    if (req.method !== 'POST') no(405, 'MethodNotAllowed', 'this method is not allowed here');
    known(query, []);
    const d = json(req, body);
    if (typeof d.object !== 'string' || d.object === '' || /[\0\r\n]/.test(d.object)) no(400, 'InvalidObjectName', 'no object');
    for (const k of Object.keys(d.metadata || {})) if (!/^opc-meta-[!-~]+$/.test(k)) no(400, 'InvalidParameter', 'metadata must be opc-meta-*');
    condition(req, bucket, d.object);
    const u = { id: crypto.randomUUID(), object: d.object, created: stamp(), parts: new Map(), meta: d.metadata || {}, type: d.contentType || 'application/octet-stream' };
    bucket.uploads.set(u.id, u);
    return [200, {}, { namespace: NS, bucket: bucketName, object: d.object, uploadId: u.id, timeCreated: u.created.toISOString() }];
}

function commit(req, bucket, u, body) {
    const d = json(req, body), list = d.partsToCommit, left = new Set(u.parts.keys());
    if (!Array.isArray(list) || list.length === 0) no(400, 'InvalidParameter', 'partsToCommit is empty');
    for (const n of d.partsToExclude || []) if (!left.delete(n)) no(400, 'InvalidUploadPart', 'partsToExclude names no part');
    let last = 0;
    const parts = list.map((p, i) => {
        const part = u.parts.get(p.partNum);
        if (p.partNum <= last) no(400, 'InvalidParameter', 'parts must be in ascending order');
        last = p.partNum;
        if (!part || part.etag !== p.etag) no(400, 'InvalidUploadPart', `part ${p.partNum} is not there, or has another ETag`);
        left.delete(p.partNum);
        if (part.data.length < MIN_PART && i < list.length - 1) no(400, 'UploadPartTooSmall', `part ${p.partNum} has less than 10 MiB`);
        return part;
    });
    if (left.size > 0 && d.partsToExclude) no(400, 'InvalidParameter', 'each part must be committed or excluded');
    condition(req, bucket, u.object);
    const sum = md5(Buffer.concat(parts.map(p => md5(p.data)))).toString('base64') + '-' + parts.length;
    const o = { data: Buffer.concat(parts.map(p => p.data)), etag: crypto.randomUUID(), modified: stamp(), multi: sum, meta: u.meta, type: u.type };
    bucket.objects.set(u.object, o);
    bucket.uploads.delete(u.id);
    return [200, { etag: o.etag, 'opc-multipart-md5': sum, 'last-modified': o.modified.toUTCString() }];
}

function onUpload(req, bucket, name, query, body) {
    const u = bucket.uploads.get(query.get('uploadId') || '');
    if (!u || u.object !== name) no(404, 'NoSuchUpload', 'There is no such upload');
    if (req.method === 'PUT') {
        known(query, ['uploadId', 'uploadPartNum']);
        const n = number(query, 'uploadPartNum', 1, 10000, 0);
        if (n === 0) no(400, 'InvalidParameter', 'uploadPartNum is missing');
        checkBody(req, body);
        seen.parts++;
        const part = { data: body, etag: crypto.randomUUID(), md5: md5(body).toString('base64') };
        u.parts.set(n, part);
        return [200, { etag: part.etag, 'opc-content-md5': part.md5 }];
    }
    if (req.method === 'GET') {
        known(query, ['uploadId', 'limit', 'page']);
        return paged([...u.parts].sort((a, b) => a[0] - b[0]).map(([n, p]) => ({ partNumber: n, etag: p.etag, md5: p.md5, size: p.data.length })), query);
    }
    known(query, ['uploadId']);
    if (req.method === 'DELETE') { bucket.uploads.delete(u.id); return [204, {}]; }
    if (req.method !== 'POST') no(405, 'MethodNotAllowed', 'this method is not allowed here');
    return commit(req, bucket, u, body);
}

function operate(req, body) {
    const at = req.url.indexOf('?'), target = at < 0 ? req.url : req.url.slice(0, at);
    let query;
    try { query = new URLSearchParams(at < 0 ? '' : req.url.slice(at + 1).replace(/\+/g, '%2B')); } catch { no(400, 'InvalidParameter', 'query'); }
    if (target.startsWith('/opc/v2/') && at < 0) return metadata(req);
    if (req.url === '/v1/x509' && req.method === 'POST') return federate(req, body);
    const m = /^\/n\/([^/]+)\/b\/([^/]+)\/([ou])(?:\/(.*))?$/.exec(target);
    authenticate(req, body, m !== null && req.method === 'PUT');
    if (target === '/n' || target === '/n/') { seen.namespace++; return [200, {}, NS]; }
    if (!m) no(404, 'NotFound', 'no such resource');
    const bucketName = decode(m[2]);
    if (bucketName.startsWith('any-') && !buckets.has(bucketName)) buckets.set(bucketName, { objects: new Map(), uploads: new Map() });
    const bucket = buckets.get(bucketName);
    if (decode(m[1]) !== NS) no(404, 'NamespaceNotFound', 'You do not have authorization, or the namespace does not exist');
    if (!bucket) no(404, 'BucketNotFound', `Either the bucket named '${bucketName}' does not exist in the namespace '${NS}' or you are not authorized to access it`);
    if (m[3] === 'o') return m[4] === undefined ? onObjects(req, bucket, query) : onObject(req, bucket, objectName(m[4]), body);
    return m[4] === undefined ? onUploads(req, bucket, bucketName, query, body) : onUpload(req, bucket, objectName(m[4]), query, body);
}

//-- the server ----------------------------------------------------------------------

function control(req, body) {
    if (req.method === 'POST') {
        const d = JSON.parse(body);
        if (d.faults) faults = d.faults;
        if (d.clock !== undefined) clock = d.clock;
        if (d.page !== undefined) page = d.page;
        if (d.revoke) keys.delete(d.revoke);
        if (d.lifetime !== undefined) lifetime = d.lifetime;
        if (d.withdraw) for (const id of ends.keys()) keys.delete(id);
        if (d.forget) for (const b of buckets.values()) { b.objects.clear(); b.uploads.clear(); }
        if (d.objects) {                    // made without a request, sparse and big ones too
            for (const [n, size] of Object.entries(d.objects)) {
                const data = Buffer.alloc(size, 7);
                buckets.get('bucket-one').objects.set(n, { data, etag: crypto.randomUUID(), modified: stamp(), md5: md5(data).toString('base64'), meta: {}, type: 'x/y' });
            }
        }
        seen.ranges = [];
    }
    const state = {};
    for (const [n, b] of buckets) state[n] = { objects: [...b.objects.keys()].sort(), uploads: [...b.uploads.values()].map(u => u.object) };
    return { requests, faults: faults.map(f => f.times), seen, buckets: state };
}

function fault(req, what) {
    for (const f of faults) {
        if (!(f.times > 0) || !new RegExp(f.match).test(`${req.method} ${req.url}`)) continue;
        if (what !== undefined && !what.includes(f.do)) continue;
        if (f.skip > 0) { f.skip--; continue; }
        f.times--;
        return f;
    }
    return null;
}

const server = http.createServer((req, res) => {
    const chunks = [];
    req.on('error', () => {});
    res.on('error', () => {});
    const early = req.url === '/control' ? null : fault(req, ['status', 'drop', 'stall']);
    if (early && early.do === 'drop') { setTimeout(() => req.socket.destroy(), early.after_ms || 0); return; }
    if (early && early.do === 'stall') return;
    req.on('data', c => chunks.push(c));
    req.on('end', () => {
        const body = Buffer.concat(chunks), id = crypto.randomUUID().replace(/-/g, '').toUpperCase();
        if (req.url === '/control') { res.setHeader('content-type', 'application/json'); res.end(JSON.stringify(control(req, body))); return; }
        requests++;
        let status, headers, out;
        try {
            if (early) no(early.status, early.code, 'as it was ordered', early.headers);
            [status, headers, out] = operate(req, body);
        } catch (e) {
            if (!(e instanceof Refusal)) { console.error(e); e.status = 500; e.code = 'InternalServerError'; }
            status = e.status; headers = e.headers || {}; out = e.code ? { code: e.code, message: e.message } : Buffer.alloc(0);
        }
        const late = fault(req, ['lost', 'cut', 'damage', 'header']);
        if (late && late.do === 'lost') { req.socket.destroy(); return; }
        let bytes = out === undefined ? Buffer.alloc(0) : Buffer.isBuffer(out) ? out : Buffer.from(JSON.stringify(out));
        const all = { 'opc-request-id': 'fake/' + id, date: stamp().toUTCString(), ...headers };
        if (out !== undefined && !Buffer.isBuffer(out)) all['content-type'] = 'application/json';
        if (late && late.do === 'header') all[late.name] = late.value;
        if (late && late.do === 'damage' && bytes.length > 0) { bytes = Buffer.from(bytes); bytes[bytes.length >> 1] ^= 4; }
        if (status !== 204 && all['content-length'] === undefined) all['content-length'] = bytes.length;
        res.sendDate = false;
        res.writeHead(status, all);
        if (late && late.do === 'cut') { res.write(bytes.subarray(0, bytes.length >> 1)); setTimeout(() => req.socket.destroy(), 20); return; }
        if (req.method === 'HEAD' || status === 204) res.end(); else res.end(bytes);
    });
});
server.requestTimeout = 0;
server.keepAliveTimeout = 30000;
server.listen(0, '127.0.0.1', () => {
    fs.writeFileSync(path.join(dir, 'port.new'), String(server.address().port));
    fs.renameSync(path.join(dir, 'port.new'), path.join(dir, 'port'));
});
process.on('SIGTERM', () => process.exit(0));
