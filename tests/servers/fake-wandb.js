// fake-wandb.js: the GraphQL interface of Weights & Biases as far as wandb:// uses it, and the storage behind it, in memory.
// run.sh: helper
//
//   node fake-wandb.js DIR   listens on a free loopback port; ends when its parent does, or with SIGTERM. DIR gets port, and env
//                            (WANDB_BASE_URL, WANDB_API_KEY: a random one). Entity "ent", projects "proj" and, made by a run, others;
//                            the run "live-run" of "proj" is there
//
// Queries are parsed: fields, arguments, variables and members of inputs that the open-source client (github.com/wandb/wandb, its
// .graphql files of 2026) does not know are refused, as are those that lack what it always sends. Checked besides: the key, that it
// goes to no storage address, signatures and life of those addresses, Content-MD5 and the other headers told, digests of files,
// manifests and artifacts, that an artifact is committed complete.
//
//   POST /_control   {"faults":[{"match":"POST /graphql createArtifact","status":503}], "clear":true, "life":SECONDS of addresses,
//                    "corrupt":"artifact", "several":"artifact" (one more file), "foreign":"artifact" (as others make them),
//                    "relative":true (addresses without a host), "deny":"message" (GraphQL's own failure of the next request)}
//                    faults are used up one request each (times, skip), by a regular expression on "METHOD path OPERATION":
//                    status: refuse with it; lose: do it and reset instead of the reply; hang: do it, never reply; cut: half of the reply
//   GET  /_control   {"requests":[...], "wrong":[...], "artifacts":{name:[versions]}, "pending":n}
//
// NOT proven against the real service, which has no public server to run and documents nothing of this: whether equal contents of an
// older version move "latest" (here they do not); what a repeated clientID does (here: the same version); whether a run that is made
// by upsertBucket alone may own artifacts; how its refusals are worded and which status they have; that storage takes ranges at
// directUrl everywhere; names and types beyond the client's own rules; the tiers' limits. No client of W&B's own could be installed
// here to read what we put: pip's wandb is in none of the registries at hand.
'use strict';
const http = require('http'), crypto = require('crypto'), fs = require('fs'), path = require('path');

const dir = process.argv[2], key = crypto.randomBytes(20).toString('hex'), secret = crypto.randomBytes(16);
const md5 = (b, as) => crypto.createHash('md5').update(b).digest(as || 'base64');
const projects = new Map([['ent/proj', { runs: new Set(['live-run']), collections: new Map() }]]);
const byId = new Map(), byClient = new Map(), manifests = new Map(), blobs = new Map();
let faults = [], requests = [], wrong = [], life = 3600, relative = false, deny = null, serial = 0;
const newId = (kind) => Buffer.from(`${kind}:${++serial}`).toString('base64');

class Refusal extends Error { constructor(status, message) { super(message); this.status = status; } }
const no = (message, status) => { throw new Refusal(status || 200, message); };

//-- GraphQL -------------------------------------------------------------------------------------------------------------------

function parse(text) {
    const tokens = text.match(/"(?:[^"\\]|\\.)*"|\.\.\.|[A-Za-z_][A-Za-z0-9_]*|-?\d+|[{}()[\]:!$=@]/g) || [];
    if (text.replace(/"(?:[^"\\]|\\.)*"|\.\.\.|[A-Za-z_][A-Za-z0-9_]*|-?\d+|[{}()[\]:!$=@]|[\s,]/g, '') !== '') no('Syntax Error: unknown character', 400);
    let at = 0;
    const peek = () => tokens[at], take = (want) => { const t = tokens[at++]; if (t === undefined || (want && t !== want)) no(`Syntax Error: expected ${want}, found ${t}`, 400); return t; };
    const type = () => { let t = peek() === '[' ? take('[') + type() + take(']') : take(); if (peek() === '!') t += take(); return t; };
    const value = () => {
        const t = take();
        if (t === '$') return { variable: take() };
        if (t === '{') { const o = {}; while (peek() !== '}') { const k = take(); take(':'); o[k] = value(); } take('}'); return { object: o }; }
        if (t === '[') { const l = []; while (peek() !== ']') l.push(value()); take(']'); return { list: l }; }
        return { plain: t[0] === '"' ? JSON.parse(t) : /^-?\d+$/.test(t) ? +t : t === 'true' ? true : t === 'false' ? false : t === 'null' ? null : t };
    };
    const args = () => { const a = {}; if (peek() === '(') { take('('); while (peek() !== ')') { const k = take(); take(':'); a[k] = value(); } take(')'); } return a; };
    const selections = () => {
        const list = [];
        take('{');
        while (peek() !== '}') {
            const f = { name: take() };
            f.args = args();
            if (peek() === '@') { take('@'); take('include'); f.include = args().if; }
            if (peek() === '{') f.fields = selections();
            list.push(f);
        }
        take('}');
        return list;
    };
    const op = { kind: take(), name: take(), variables: {} };
    if (op.kind !== 'query' && op.kind !== 'mutation') no('Syntax Error: no operation', 400);
    if (peek() === '(') { take('('); while (peek() !== ')') { take('$'); const k = take(); take(':'); op.variables[k] = type(); } take(')'); }
    op.fields = selections();
    if (at !== tokens.length) no('Syntax Error: something behind the operation', 400);
    return op;
}

// Types: fields with their arguments and type; a type "X!" of an argument is required. Scalars are not listed.
const types = {
    query: { project: [{ name: 'String!', entityName: 'String!' }, 'Project'], artifact: [{ id: 'ID!' }, 'Artifact'] },
    mutation: { upsertBucket: [{ input: 'UpsertBucketInput!' }, 'UpsertBucket'], createArtifact: [{ input: 'CreateArtifactInput!' }, 'CreateArtifact'],
        createArtifactManifest: [{ input: 'CreateArtifactManifestInput!' }, 'CreateManifest'], createArtifactFiles: [{ input: 'CreateArtifactFilesInput!' }, 'CreateFiles'],
        commitArtifact: [{ input: 'CommitArtifactInput!' }, 'CommitArtifact'], addAliases: [{ input: 'AddAliasesInput!' }, 'AddAliases'],
        deleteArtifactSequence: [{ input: 'DeleteArtifactSequenceInput!' }, 'DeleteSequence'] },
    Project: { artifact: [{ name: 'String!' }, 'Artifact'], artifactCollections: [{ after: 'String', first: 'Int' }, 'Collections'] },
    Artifact: { id: [{}], state: [{}], size: [{}], digest: [{}], metadata: [{}], createdAt: [{}], artifactSequence: [{}, 'Collection'], files: [{ first: 'Int', after: 'String' }, 'Files'] },
    Collections: { pageInfo: [{}, 'PageInfo'], edges: [{}, 'CollectionEdge'] }, CollectionEdge: { node: [{}, 'Collection'] },
    Collection: { id: [{}], name: [{}], state: [{}], latestArtifact: [{}, 'Artifact'], artifactMembership: [{ aliasName: 'String!' }, 'Membership'] },
    Membership: { artifact: [{}, 'Artifact'] }, PageInfo: { endCursor: [{}], hasNextPage: [{}] },
    Files: { pageInfo: [{}, 'PageInfo'], edges: [{}, 'FileEdge'] }, FileEdge: { node: [{}, 'File'] },
    File: { id: [{}], name: [{}], sizeBytes: [{}], md5: [{}], directUrl: [{}], storagePath: [{}], uploadUrl: [{}], uploadHeaders: [{}], artifact: [{}, 'Artifact'] },
    UpsertBucket: { bucket: [{}, 'Run'], inserted: [{}] }, Run: { id: [{}], name: [{}] }, CreateArtifact: { artifact: [{}, 'Artifact'] }, CommitArtifact: { artifact: [{}, 'Artifact'] },
    CreateManifest: { artifactManifest: [{}, 'Manifest'] }, Manifest: { id: [{}], file: [{}, 'File'] }, CreateFiles: { files: [{}, 'Files'] }, AddAliases: { success: [{}] },
    DeleteSequence: { artifactCollection: [{}, 'Collection'] },
};
const inputs = {
    UpsertBucketInput: { name: 'String', modelName: 'String', entityName: 'String', jobType: 'String' },
    CreateArtifactInput: { entityName: 'String!', projectName: 'String!', artifactTypeName: 'String!', artifactCollectionName: 'String!', runName: 'String', digest: 'String!',
        digestAlgorithm: 'ArtifactDigestAlgorithm!', aliases: '[ArtifactAliasInput!]', metadata: 'JSONString', enableDigestDeduplication: 'Boolean!', clientID: 'ID!', sequenceClientID: 'ID!' },
    ArtifactAliasInput: { artifactCollectionName: 'String!', alias: 'String!' },
    CreateArtifactManifestInput: { artifactID: 'ID!', baseArtifactID: 'ID', name: 'String!', digest: 'String!', entityName: 'String!', projectName: 'String!', runName: 'String!', type: 'ArtifactManifestType!' },
    CreateArtifactFilesInput: { artifactFiles: '[CreateArtifactFileSpecInput!]!', storageLayout: 'ArtifactStorageLayout!' },
    CreateArtifactFileSpecInput: { artifactID: 'ID!', name: 'String!', md5: 'String!', artifactManifestID: 'ID' },
    CommitArtifactInput: { artifactID: 'ID!' }, DeleteArtifactSequenceInput: { artifactSequenceID: 'ID!' },
    AddAliasesInput: { artifactID: 'ID!', aliases: '[ArtifactCollectionAliasInput!]!' },
    ArtifactCollectionAliasInput: { entityName: 'String!', projectName: 'String!', artifactCollectionName: 'String!', alias: 'String!' },
};

function check(v, type, where) {
    if (v === undefined || v === null) { if (type.endsWith('!')) no(`${where}: a value of type ${type} is required`, 400); return; }
    const t = type.replace(/!$/, '');
    if (t[0] === '[') { if (!Array.isArray(v)) no(`${where}: no list`, 400); v.forEach((x) => check(x, t.slice(1, -1), where)); return; }
    if (inputs[t]) {
        if (typeof v !== 'object') no(`${where}: no ${t}`, 400);
        for (const k of Object.keys(v)) if (!inputs[t][k]) no(`${where}: ${t} has no field "${k}"`, 400);
        for (const k of Object.keys(inputs[t])) check(v[k], inputs[t][k], `${where}.${k}`);
    } else if (t === 'Int' ? !Number.isInteger(v) : t === 'Boolean' ? typeof v !== 'boolean' : typeof v !== 'string') no(`${where}: no ${t}`, 400);
    if (t === 'JSONString') try { JSON.parse(v); } catch { no(`${where}: no JSON`, 400); }
}

function execute(op, variables, host) {
    const used = new Set(), collect = (v) => { if (v.variable !== undefined) used.add(v.variable); else Object.values(v.object || v.list || {}).forEach(collect); };
    const walk = (fields) => fields.forEach((f) => { Object.values(f.args).forEach(collect); if (f.include) collect(f.include); walk(f.fields || []); });
    walk(op.fields);
    for (const k of Object.keys(op.variables)) if (!used.has(k)) no(`Variable "$${k}" is never used`, 400);
    for (const k of Object.keys(variables)) if (!op.variables[k]) no(`Unknown variable "$${k}"`, 400);
    for (const [k, t] of Object.entries(op.variables)) check(variables[k], t, '$' + k);
    const resolve = (v) => {
        if (v.variable !== undefined) { if (!op.variables[v.variable]) no(`Variable "$${v.variable}" is not defined`, 400); return variables[v.variable]; }
        if (v.object) return Object.fromEntries(Object.entries(v.object).map(([k, x]) => [k, resolve(x)]));
        return v.list ? v.list.map(resolve) : v.plain;
    };
    const run = (value, type, fields) => {
        if (value === null || value === undefined) return null;
        if (Array.isArray(value)) return value.map((v) => run(v, type, fields));
        const out = {};
        for (const f of fields) {
            const known = types[type] && types[type][f.name];
            if (!known) no(`Cannot query field "${f.name}" on type "${type}"`, 400);
            const args = Object.fromEntries(Object.entries(f.args).map(([k, v]) => [k, resolve(v)]));
            for (const k of Object.keys(args)) if (!known[0][k]) no(`Unknown argument "${k}" on field "${f.name}"`, 400);
            for (const k of Object.keys(known[0])) check(args[k], known[0][k], `${f.name}(${k})`);
            if (!known[1] !== !f.fields) no(`Field "${f.name}" must ${known[1] ? '' : 'not '}have a selection`, 400);
            if (f.include && !resolve(f.include)) continue;
            const v = typeof value[f.name] === 'function' ? value[f.name](args, host) : value[f.name];
            out[f.name] = known[1] ? run(v, known[1], f.fields) : v === undefined ? null : v;
        }
        return out;
    };
    return run(root, op.kind, op.fields);
}

//-- artifacts -----------------------------------------------------------------------------------------------------------------

const sign = (text) => crypto.createHmac('sha256', secret).update(text).digest('hex');
function address(method, name, md5sum, host) {
    const until = Date.now() + 1000 * life, p = '/storage/' + name.split('/').map(encodeURIComponent).join('/');
    return `${relative ? '' : 'http://' + host}${p}?X-Expires=${until}&X-Signature=${sign([method, p, until, md5sum].join('\n'))}`;
}
const headersFor = (sum) => [`Content-MD5:${sum}`, 'Content-Type:application/octet-stream'];
const view = (f, artifact, host) => ({ id: f.id, name: f.name, sizeBytes: f.size === undefined ? null : f.size, md5: f.md5, storagePath: f.blob, artifact,
    directUrl: () => address('GET', f.blob, '', host) });
function show(a) {
    if (!a) return null;
    return { id: a.id, state: a.state, size: a.files.reduce((n, f) => n + (f.size || 0), 0), digest: a.digest, metadata: a.metadata, createdAt: a.created,
        artifactSequence: () => showCollection(a.collection), files: (args, host) => ({ pageInfo: { hasNextPage: false, endCursor: null }, edges: a.files.slice(0, args.first).map((f) => ({ node: view(f, show(a), host) })) }) };
}
const showCollection = (c) => ({ id: c.id, name: c.name, state: 'READY', latestArtifact: () => show(c.versions.filter((v) => v.state === 'COMMITTED').pop()),
    artifactMembership: (args) => c.aliases.has(args.aliasName) ? { artifact: show(c.aliases.get(args.aliasName)) } : null });
const need = (map, k, what) => map.get(k) || no(`${what} not found`, 404);
const artifactOf = (id) => need(byId, id, 'artifact');

const root = {
    project({ name, entityName }) {
        const p = projects.get(`${entityName}/${name}`);
        if (!p) return null;
        return {
            artifact: (args) => {
                const [n, alias] = args.name.split(':'), c = p.collections.get(n);
                if (alias === undefined) no('a name needs an alias or version', 400);
                return c && c.aliases.has(alias) ? show(c.aliases.get(alias)) : null;
            },
            artifactCollections: (args) => {
                const names = [...p.collections.keys()].sort(), from = args.after ? names.findIndex((n) => n > Buffer.from(args.after, 'base64').toString()) : 0;
                const page = from < 0 ? [] : names.slice(from, from + Math.min(args.first || 10, 3)), last = page[page.length - 1];
                return { edges: page.map((n) => ({ node: showCollection(p.collections.get(n)) })), pageInfo: { hasNextPage: page.length > 0 && last !== names[names.length - 1], endCursor: last === undefined ? null : Buffer.from(last).toString('base64') } };
            },
        };
    },
    artifact: ({ id }) => show(byId.get(id)),
    upsertBucket({ input: i }) {
        if (i.entityName !== 'ent') no('permission denied', 403);
        const k = `${i.entityName}/${i.modelName}`;
        if (!projects.has(k)) projects.set(k, { runs: new Set(), collections: new Map() });
        projects.get(k).runs.add(i.name);
        return { bucket: { id: 'run', name: i.name }, inserted: true };
    },
    createArtifact({ input: i }) {
        const p = need(projects, `${i.entityName}/${i.projectName}`, 'project');
        if (!p.runs.has(i.runName)) no('run not found', 404);
        if (!/^[-\w.]{1,128}$/.test(i.artifactCollectionName)) no('Artifact name may only contain alphanumeric characters, dashes, underscores, and dots.', 400);
        if (!/^[-\w]+([ ]*[-.\w]+)*$/.test(i.artifactTypeName) || i.artifactTypeName.length > 128) no('invalid artifact type', 400);
        if (!/^[0-9a-f]{32}$/.test(i.digest) || i.digestAlgorithm !== 'MANIFEST_MD5') no('invalid digest', 400);
        if (!/^[0-9a-z]{128}$/.test(i.clientID) || !/^[0-9a-z]{128}$/.test(i.sequenceClientID)) no('invalid client id', 400);
        if (byClient.has(i.clientID) && byClient.get(i.clientID).collection.versions.includes(byClient.get(i.clientID))) return { artifact: show(byClient.get(i.clientID)) };
        let c = p.collections.get(i.artifactCollectionName);
        if (c && c.type !== i.artifactTypeName) no(`artifact ${c.name} has another type`, 400);
        if (!c) p.collections.set(i.artifactCollectionName, c = { id: newId('ArtifactCollection'), name: i.artifactCollectionName, type: i.artifactTypeName, project: p, versions: [], aliases: new Map() });
        const same = i.enableDigestDeduplication && c.versions.find((v) => v.state === 'COMMITTED' && v.digest === i.digest);
        if (same) return { artifact: show(same) };
        for (const a of i.aliases || []) if (a.artifactCollectionName !== c.name) no('alias of another collection', 400);
        const a = { id: newId('Artifact'), state: 'PENDING', digest: i.digest, metadata: i.metadata, created: new Date().toISOString(), collection: c, files: [], manifest: null, aliases: (i.aliases || []).map((x) => x.alias) };
        c.versions.push(a);
        byId.set(a.id, a);
        byClient.set(i.clientID, a);
        return { artifact: show(a) };
    },
    createArtifactManifest({ input: i }, host) {
        const a = artifactOf(i.artifactID);
        if (i.baseArtifactID) artifactOf(i.baseArtifactID);
        if (i.name !== 'wandb_manifest.json' || i.type !== 'FULL') no('manifest', 400);
        if (!need(projects, `${i.entityName}/${i.projectName}`, 'project').runs.has(i.runName)) no('run not found', 404);
        const m = a.manifest || { id: newId('ArtifactManifest'), artifact: a };
        m.digest = i.digest;
        m.blob = `manifests/${Buffer.from(m.id, 'base64').toString().replace(':', '-')}/wandb_manifest.json`;
        a.manifest = m;
        manifests.set(m.id, m);
        return { artifactManifest: { id: m.id, file: { id: m.id, uploadUrl: () => address('PUT', m.blob, m.digest, host), uploadHeaders: headersFor(m.digest) } } };
    },
    createArtifactFiles({ input: i }, host) {
        if (i.storageLayout !== 'V2') no('storageLayout', 400);
        return { files: { edges: i.artifactFiles.map((f) => {
            const a = artifactOf(f.artifactID);
            if (a.state !== 'PENDING') no('the artifact is committed', 400);
            if (!f.artifactManifestID || need(manifests, f.artifactManifestID, 'manifest').artifact !== a) no('manifest of another artifact', 400);
            if (Buffer.from(f.md5, 'base64').length !== 16) no('md5', 400);
            if (!f.name || f.name.startsWith('/') || f.name.split('/').includes('..')) no('invalid file name', 400);
            const there = [...byId.values()].filter((x) => x.state === 'COMMITTED').flatMap((x) => x.files.map((y) => [x, y])).find(([, y]) => y.md5 === f.md5);
            const file = { id: newId('File'), name: f.name, md5: f.md5, blob: there ? there[1].blob : `${a.collection.name}/${Buffer.from(a.id, 'base64').toString().replace(':', '-')}/${f.name}`, birth: there ? there[0].id : a.id };
            a.files = a.files.filter((x) => x.name !== f.name).concat([file]);
            return { node: { ...view(file, { id: file.birth }, host), uploadUrl: there ? null : address('PUT', file.blob, f.md5, host), uploadHeaders: headersFor(f.md5) } };
        }) } };
    },
    commitArtifact({ input: i }) {
        const a = artifactOf(i.artifactID);
        if (a.state === 'COMMITTED') return { artifact: show(a) };
        const m = a.manifest && blobs.get(a.manifest.blob);
        if (!m) no('the manifest was not uploaded', 400);
        const j = JSON.parse(m.toString());
        if (j.version !== 1 || j.storagePolicy !== 'wandb-storage-policy-v1' || j.storagePolicyConfig.storageLayout !== 'V2' || Object.keys(j).length !== 4) no('the manifest is none', 400);
        const names = Object.keys(j.contents).sort(), h = crypto.createHash('md5').update('wandb-artifact-manifest-v1\n');
        for (const n of names) {
            const f = a.files.find((x) => x.name === n), e = j.contents[n], data = f && blobs.get(f.blob);
            if (!f || !data || md5(data) !== f.md5 || e.digest !== f.md5 || e.size !== data.length || e.birthArtifactID !== f.birth) no(`the file ${n} is not as the manifest says`, 400);
            f.size = data.length;
            h.update(`${n}:${e.digest}\n`);
        }
        if (h.digest('hex') !== a.digest || names.length !== a.files.length) no("the artifact's digest is wrong", 400);
        a.state = 'COMMITTED';
        for (const alias of a.aliases) a.collection.aliases.set(alias, a);
        a.collection.aliases.set('v' + (a.collection.versions.filter((v) => v.state === 'COMMITTED').length - 1), a);
        return { artifact: show(a) };
    },
    addAliases({ input: i }) {
        const a = artifactOf(i.artifactID);
        for (const x of i.aliases) { if (x.artifactCollectionName !== a.collection.name) no('alias of another collection', 400); a.collection.aliases.set(x.alias, a); }
        return { success: true };
    },
    deleteArtifactSequence({ input: i }) {
        for (const p of projects.values()) for (const c of p.collections.values()) if (c.id === i.artifactSequenceID) {
            p.collections.delete(c.name);
            c.versions.forEach((v) => { byId.delete(v.id); });
            return { artifactCollection: { ...showCollection(c), state: 'DELETED' } };
        }
        return no('artifact collection not found', 404);
    },
};

//-- the server ----------------------------------------------------------------------------------------------------------------

function storage(req, res, body, url) {
    const q = url.searchParams, until = q.get('X-Expires'), name = decodeURIComponent(url.pathname.slice('/storage/'.length)), sum = req.method === 'PUT' ? req.headers['content-md5'] || '' : '';
    const reply = (status, headers, data) => { res.writeHead(status, { 'Content-Length': data.length, ...headers }); res.end(data); };
    const error = (status, code) => reply(status, { 'Content-Type': 'application/xml' }, Buffer.from(`<Error><Code>${code}</Code><Message>${url.search}</Message></Error>`));
    if (req.headers.authorization !== undefined && !relative) { wrong.push('a key for the storage'); return error(400, 'InvalidArgument'); }
    if (q.get('X-Signature') !== sign([req.method, url.pathname, until, sum].join('\n'))) { return error(403, 'SignatureDoesNotMatch'); }
    if (+until < Date.now()) return error(403, 'AccessDenied');
    if (req.method === 'PUT') {
        if (req.headers['content-type'] !== 'application/octet-stream' || req.headers['content-length'] === undefined) { wrong.push('headers of a PUT'); return error(400, 'InvalidArgument'); }
        const digest = md5(body);
        if (digest !== sum) return error(400, 'BadDigest');
        blobs.set(name, body);
        return reply(200, { ETag: `"${Buffer.from(digest, 'base64').toString('hex')}"` }, Buffer.alloc(0));
    }
    const data = blobs.get(name), m = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range || '');
    if (!data) return error(404, 'NoSuchKey');
    if (!m) return reply(200, {}, data);
    const from = +m[1], to = Math.min(m[2] === '' ? Infinity : +m[2], data.length - 1);
    if (from >= data.length) return error(416, 'InvalidRange');
    return reply(206, { 'Content-Range': `bytes ${from}-${to}/${data.length}` }, data.subarray(from, to + 1));
}

function control(req, res, body) {
    const find = (name) => { for (const p of projects.values()) if (p.collections.has(name)) return p.collections.get(name).aliases.get('latest'); throw new Error(name); };
    if (req.method === 'POST') {
        const c = JSON.parse(body.toString());
        if (c.clear) { requests = []; wrong = []; }
        if (c.faults) faults = c.faults.map((f) => ({ times: 1, ...f }));
        if (c.life !== undefined) life = c.life;
        if (c.relative !== undefined) relative = c.relative;
        if (c.deny !== undefined) deny = c.deny;
        if (c.corrupt) { const f = find(c.corrupt).files[0]; blobs.set(f.blob, Buffer.from(blobs.get(f.blob))); blobs.get(f.blob)[0] ^= 1; }
        if (c.several) { const a = find(c.several); a.files.push({ ...a.files[0], name: 'other' }); }
        if (c.foreign) find(c.foreign).metadata = '{"timestamp/batch": 3}';
        if (c.foreign === '') for (const p of projects.values()) p.collections.clear();
    }
    const artifacts = {};
    for (const p of projects.values()) for (const c of p.collections.values()) artifacts[c.name] = c.versions.map((v) => ({ state: v.state, type: c.type, files: v.files.map((f) => f.name), metadata: v.metadata }));
    const text = JSON.stringify({ requests, wrong, faults: faults.map((f) => f.times), pending: [...byId.values()].filter((a) => a.state === 'PENDING').length, artifacts });
    res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
    res.end(text);
}

const server = http.createServer((req, res) => {
    const chunks = [];
    req.on('error', () => {});
    res.on('error', () => {});
    req.on('data', (c) => chunks.push(c));
    req.on('end', () => {
        const body = Buffer.concat(chunks), url = new URL(req.url, 'http://x');
        if (url.pathname === '/_control') return control(req, res, body);
        let question = null, op = null, name = '';
        if (!url.pathname.startsWith('/storage/')) try { question = JSON.parse(body.toString()); op = parse(question.query); name = op.fields[0].name; } catch (e) { if (e instanceof Refusal) name = 'broken'; }
        const line = `${req.method} ${url.pathname} ${name}`, fault = faults.find((f) => f.times > 0 && new RegExp(f.match).test(line) && !(f.skip-- > 0));
        requests.push(line);
        if (fault) fault.times--;
        const quiet = fault && (fault.lose || fault.hang), to = quiet ? { writeHead() {}, end() {} } : res;
        const json = (status, value) => {
            let data = Buffer.from(JSON.stringify(value));
            to.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': data.length });
            if (fault && fault.cut) { res.write(data.subarray(0, data.length >> 1)); setTimeout(() => req.socket.destroy(), 20); return; }
            to.end(data);
        };
        if (fault && fault.status) json(fault.status, { errors: [{ message: 'the test says so' }] });
        else if (url.pathname.startsWith('/storage/')) storage(req, to, body, url);
        else if (url.pathname !== '/graphql' || req.method !== 'POST') json(404, { error: 'not found' });
        else if (req.headers.authorization !== 'Basic ' + Buffer.from('api:' + key).toString('base64')) json(401, { error: 'user is not logged in ' + (req.headers.authorization || '') });
        else if (deny) { json(200, { errors: [{ message: deny, path: [name] }], data: null }); deny = null; }
        else {
            try {
                if (req.headers['content-type'] !== 'application/json') no('Content-Type', 400);
                if (!op) op = parse(question.query);
                json(200, { data: execute(op, question.variables || {}, req.headers.host) });
            } catch (e) {
                if (!(e instanceof Refusal)) { wrong.push(`${line}: ${e.stack}`); e = new Refusal(500, 'internal'); }
                else if (e.status === 400) wrong.push(`${line}: ${e.message}`);
                json(e.status, { errors: [{ message: e.message, path: [name] }], data: e.status === 200 ? null : undefined });
            }
        }
        if (quiet && !fault.hang) req.socket.resetAndDestroy();
    });
});
server.keepAliveTimeout = 60000;
server.listen(0, '127.0.0.1', () => {
    fs.writeFileSync(path.join(dir, 'env'), `WANDB_BASE_URL=http://127.0.0.1:${server.address().port}\nWANDB_API_KEY=${key}\n`);
    fs.writeFileSync(path.join(dir, 'port.new'), String(server.address().port));
    fs.renameSync(path.join(dir, 'port.new'), path.join(dir, 'port'));
});
const parent = process.ppid;
setInterval(() => { if (process.ppid !== parent) process.exit(0); }, 500);
