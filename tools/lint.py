#!/usr/bin/env python3
"""lint.py: the rules of ckpt.h that no compiler checks.

    python3 tools/lint.py               prints FILE:LINE: what is wrong, for each violation; status 1 if there are any
    python3 tools/lint.py --map         draws the call graph between sections, with lines and functions of each
    python3 tools/lint.py --calls NAME  who calls the function NAME and whom it calls

The order of the sections is the architecture: a section calls only the sections that its card names behind "uses:", all of
them above it, and no private function is declared before it is defined.
"""
import bisect
import os
import re
import sys

COLUMNS = 130
LONGEST = 120           # lines of a function
USUAL = 60              # 95 % of the functions are shorter

# Names of a section's functions and types: ckpt__<one of these>_.
PREFIXES = {"memory": ["mem", "buf"], "platform": ["os"], "text": ["txt", "json", "ini", "xml", "uri", "view"], "plan": ["plan", "toc", "source", "seg",
            "blob", "fixup", "entry"], "state": ["state", "binding", "binds", "items"], "engine": ["engine", "image", "want"], "uploader": ["uploader", "upload"],
            "retry": ["retry", "gate", "meter", "events"],
            "transfer": ["transfer", "fields", "body", "sink"]}

# May not be called at all: they print, exit, have no bound, or change the whole process.
BANNED = """printf vprintf puts putchar putc fputs fputc perror sprintf vsprintf strcpy strcat strncpy strncat stpcpy gets scanf sscanf fscanf
    strtok strtok_r exit _exit _Exit abort quick_exit atexit system popen atoi atol atoll atof rand srand random srandom setenv putenv
    unsetenv setlocale localeconv umask chdir signal sigaction alloca asctime ctime gmtime localtime tmpnam tempnam mktemp
    setbuf fopen freopen longjmp setjmp strerror assert fork vfork""".split()
ALLOWED = {("strerror", "platform"), ("sigaction", "platform")}      # the second only asks

# System calls: in >>platform only, through CKPT__SYS there.
SYSTEM = """open openat creat close read write pread pwrite readv writev preadv pwritev lseek fsync fdatasync ftruncate truncate fallocate
    posix_fallocate posix_fadvise sync_file_range rename renameat renameat2 link linkat symlink readlink unlink unlinkat rmdir mkdir mkdirat
    stat lstat fstat fstatat statx access faccessat chmod fchmod opendir fdopendir readdir closedir realpath flock fcntl lockf mmap munmap
    madvise mincore mlock socket connect bind listen accept send recv pipe pipe2 dup dup2 posix_spawn posix_spawnp execv execve execvp
    waitpid wait kill getpid gethostname isatty ioctl poll select clock_gettime gettimeofday time nanosleep usleep sleep getenv
    sched_getaffinity sched_yield sysconf getrandom pthread_create pthread_join pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock
    pthread_cond_wait pthread_cond_timedwait pthread_cond_signal pthread_cond_broadcast pthread_sigmask sigprocmask mkostemp mkstemp
    copy_file_range sendfile splice dlopen dlsym""".split()
SYSTEM_MACROS = ["__linux__", "__APPLE__", "_WIN32", "__FreeBSD__", "__unix__", "__MACH__"]

bad = []


def report(path, line, text):
    bad.append((path, line, text))


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(text, keep_preprocessor=False):
    """The text with comments, strings and preprocessor lines blanked out, line breaks and columns kept."""
    token = re.compile(r'//(?:[^\n\\]|\\.)*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    text = token.sub(blank, text)
    if not keep_preprocessor:
        text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", blank, text, flags=re.M)
    return text


class Function:
    def __init__(self, name, first, last, body, section):
        self.name, self.first, self.last, self.body, self.section = name, first, last, body, section


class Section:
    def __init__(self, name, line, uses):
        self.name, self.line, self.uses, self.last = name, line, uses, line
        self.calls = {}         # section name -> {(caller, callee)}


class Header:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            self.text = f.read()
        self.lines = self.text.split("\n")
        self.code = code_of(self.text)
        self.starts = [0] + [m.end() for m in re.finditer("\n", self.text)]
        self.sections = []
        self.find_sections()
        self.functions, self.statements, self.types = [], [], {}
        self.find_definitions()
        self.by_name = {}
        for f in self.functions:
            self.by_name.setdefault(f.name, f)

    def line_of(self, at):
        return bisect.bisect_right(self.starts, at)

    def find_sections(self):
        self.implementation = len(self.lines)
        for i, line in enumerate(self.lines):
            m = re.match(r"// >>([a-z_0-9.]+)", line)
            if not m:
                continue
            if m.group(1) == "implementation":
                self.implementation = i + 1
            uses, inside = None, False
            for card in self.lines[i + 1:i + 60]:
                if card.startswith("//---") or not card.startswith("//"):
                    break
                u = re.match(r"//\s+uses:\s*(.*)", card)
                if u:
                    uses, inside = u.group(1).split(), True
                elif inside and re.match(r"//\s{6,}[a-z][a-z ]*$", card):
                    uses += card[2:].split()
                else:
                    inside = False
            if uses == ["nothing"]:
                uses = []
            if self.sections:
                self.sections[-1].last = i
            self.sections.append(Section(m.group(1), i + 1, uses))
        if self.sections:
            self.sections[-1].last = len(self.lines)

    def section_at(self, line):
        found = None
        for s in self.sections:
            if s.line <= line:
                found = s
        return found

    def find_definitions(self):
        """Cuts the code at brace depth 0 into functions, and other statements."""
        code = re.sub(r'extern\s+\{', lambda m: " " * len(m.group(0)), self.code)    # extern "C" { of C++
        depth, start, i = 0, 0, 0
        opened = None
        for m in re.finditer(r"[{};]", code):
            c, at = m.group(0), m.start()
            if c == "{":
                if depth == 0:
                    opened = at
                depth += 1
            elif c == "}":
                depth = max(0, depth - 1)
                if depth == 0 and opened is not None:
                    head = code[start:opened]
                    f = re.search(r"([A-Za-z_]\w*)\s*\((?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\))*\)\s*$", head)
                    first = self.line_of(start + len(head) - len(head.lstrip()))
                    if f and "=" not in head.split("(")[0] and not re.match(r"\s*(typedef|struct|enum|union)\b[^(]*$", head):
                        self.functions.append(Function(f.group(1), first, self.line_of(at), code[opened:at + 1], self.section_at(first)))
                        start, opened = at + 1, None
            elif depth == 0:
                text = code[start:at].strip()
                if text:
                    first = self.line_of(start + len(code[start:at]) - len(code[start:at].lstrip()))
                    self.statements.append((first, text))
                start, opened = at + 1, None
        for first, text in self.statements:
            section = self.section_at(first)
            m = re.match(r"typedef\b.*?(ckpt__\w+)\s*(?:\[[^\]]*\])?$", text, re.S)
            names = [m.group(1)] if m else []
            m = re.match(r"typedef\s.*\(\s*\*\s*(ckpt__\w+)\s*\)", text, re.S)
            names += [m.group(1)] if m else []
            m = re.match(r"(?:struct|enum|union)\s+(ckpt__\w+)\s*\{", text)
            names += [m.group(1)] if m else []
            for name in names:
                self.types.setdefault(name, section)


def check_text(h):
    for i, line in enumerate(h.lines, 1):
        if re.search(r"[^\x00-\x7f]", line):
            report(h.path, i, "is not ASCII")
        if len(line) > COLUMNS:
            report(h.path, i, "has %d columns, more than %d" % (len(line), COLUMNS))
        if line != line.rstrip():
            report(h.path, i, "ends in blanks")
        if "\t" in line:
            report(h.path, i, "holds a tab")
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line):
            report(h.path, i, "leaves something to do")
    if "@MANUAL@" in h.text or "@LICENSE@" in h.text:
        report(h.path, 1, "a placeholder was not filled in")


def check_version(h):
    m = re.search(r" - v(\d+)\.(\d+)\.(\d+) - ", h.lines[0])
    if not m:
        report(h.path, 1, "line 1 names no version")
        return
    macros = [re.search(r"#define CKPT_VERSION_%s\s+(\d+)" % part, h.text) for part in ("MAJOR", "MINOR", "PATCH")]
    if [x and x.group(1) for x in macros] != list(m.groups()):
        report(h.path, 1, "its version is not that of CKPT_VERSION_MAJOR, MINOR and PATCH")
    if '"%s.%s.%s"' % m.groups() not in (re.search(r"#define CKPT_VERSION\s+(.*)", h.text) or [None, ""])[1]:
        report(h.path, 1, "its version is not that of CKPT_VERSION")


def check_calls(h):
    order = {s.name: i for i, s in reversed(list(enumerate(h.sections)))}
    known = set(order)
    for s in h.sections:
        if s.line <= h.implementation:
            continue
        if s.uses is None:
            report(h.path, s.line, "section %s has no card with 'uses:'" % s.name)
            continue
        for u in s.uses:
            if u not in known:
                report(h.path, s.line, "section %s says that it uses %s, which is no section" % (s.name, u))
            elif order[u] > h.sections.index(s):
                report(h.path, s.line, "section %s says that it uses %s, which is below it" % (s.name, u))
    for f in h.functions:
        if f.section is None or f.first < h.implementation:
            continue
        if f.name.startswith("ckpt__"):
            word = f.name[6:].split("_")[0]
            stem = f.section.name.split(".")[0]
            if word not in PREFIXES.get(stem, []) + [stem]:
                report(h.path, f.first, "%s is in section %s, and its name says another" % (f.name, f.section.name))
        elif not f.name.startswith("ckpt_"):
            report(h.path, f.first, "%s does not begin with ckpt_" % f.name)
        names = set(re.findall(r"\bckpt_\w+\b", f.body))
        head = "\n".join(h.lines[f.first - 1:f.last])
        for name in names:
            g = h.by_name.get(name)
            if g is None or g is f or g.section is None:
                continue
            if g.first > f.first and name.startswith("ckpt__"):
                report(h.path, f.first, "%s uses %s, which is defined below it (line %d)" % (f.name, name, g.first))
            if g.section.name != f.section.name:
                f.section.calls.setdefault(g.section.name, set()).add((f.name, name))
        for name in set(re.findall(r"\bckpt__\w+\b", head)):
            t = h.types.get(name)
            if t is not None and t.name != f.section.name:
                f.section.calls.setdefault(t.name, set()).add((f.name, name))
    for first, text in h.statements:        # types within types
        s = h.section_at(first)
        if s is None or first < h.implementation:
            continue
        for name in set(re.findall(r"\bckpt__\w+\b", text)):
            t = h.types.get(name)
            if t is not None and t.name != s.name:
                s.calls.setdefault(t.name, set()).add(("a declaration", name))
    merged = {}
    for s in h.sections:                    # a section may have several parts of one name
        m = merged.setdefault(s.name, (s, set(), {}))
        m[1].update(s.uses or [])
        for to, pairs in s.calls.items():
            m[2].setdefault(to, set()).update(pairs)
    for name, (s, uses, calls) in merged.items():
        if s.line <= h.implementation or s.uses is None:
            continue
        for to in sorted(calls):
            if to not in uses and not to.startswith("api") and to != "implementation":
                caller, callee = sorted(calls[to])[0]
                report(h.path, s.line, "section %s uses %s without saying so (%s: %s; %d such)" % (name, to, caller, callee, len(calls[to])))
        for to in sorted(uses):
            if to in known and to not in calls:
                report(h.path, s.line, "section %s says that it uses %s and does not" % (name, to))


def check_functions(h):
    lengths = []
    for f in h.functions:
        if f.section is None:
            continue
        n = f.last - f.first + 1
        lengths.append((n, f))
        if n > LONGEST:
            report(h.path, f.first, "%s has %d lines, more than %d" % (f.name, n, LONGEST))
        at = h.starts[f.first - 1]
        for m in re.finditer(r"(?<![\w.>])([a-zA-Z_]\w*)\s*\(", f.body):
            name = m.group(1)
            line = f.last - f.body.count("\n", m.start())
            if name in BANNED and (name, f.section.name) not in ALLOWED:
                report(h.path, line, "%s calls %s" % (f.name, name))
            if name in SYSTEM and f.section.name != "platform":
                report(h.path, line, "%s calls the system (%s) outside >>platform" % (f.name, name))
        for m in re.finditer(r"\bCKPT__SYS\b", f.body):
            if f.section.name != "platform":
                report(h.path, f.first, "%s uses CKPT__SYS outside >>platform" % f.name)
        for m in re.finditer(r"\b(stdout|stderr)\b", f.body):
            if not re.search(r"progress_bar|public_bar", f.name):
                report(h.path, f.first, "%s uses %s" % (f.name, m.group(1)))
        for m in re.finditer(r"\bstatic\b(?!\s+const\b)([^;=]*)", f.body):
            if "const" not in m.group(1):
                report(h.path, f.first, "%s has a static variable: %s" % (f.name, m.group(0).strip()))
        del at
    long = [f for n, f in lengths if n >= USUAL]
    if lengths and len(long) > 0.05 * len(lengths):
        report(h.path, long[0].first, "%d of %d functions have %d lines or more, above 5 %%" % (len(long), len(lengths), USUAL))


def check_statements(h):
    for first, text in h.statements:
        if first < h.implementation or text.startswith("typedef"):
            continue
        if re.match(r"(struct|enum|union)\s+\w+\s*(\{.*\})?$", text, re.S) or re.match(r"enum\s*\{", text):
            continue
        name = re.search(r"\b(ckpt_\w+)\s*\(", text)
        if name and "=" not in text.split("(")[0] and "CKPT__CHECK" not in text:
            report(h.path, first, "%s is declared before it is defined" % name.group(1))
        elif not re.search(r"\bconst\b", text.split("=")[0]) and not re.search(r"\b(ckpt__error_last|ckpt__http_once)\b", text):
            report(h.path, first, "writable variable at file scope: %s" % text.split("=")[0].strip()[:60])


def check_preprocessor(h):
    code = code_of(h.text, keep_preprocessor=True).split("\n")
    for i, line in enumerate(code, 1):
        s = h.section_at(i)
        name = s.name if s else "guard"
        if i > h.implementation and re.match(r"\s*#\s*(if|elif|ifdef|ifndef)", line):
            for macro in SYSTEM_MACROS:
                if re.search(r"\b%s\b" % macro, line) and name not in ("guard", "platform", "implementation"):
                    report(h.path, i, "asks for the system (%s) outside >>platform" % macro)
        m = re.match(r"\s*#\s*define\s+(\w+)", line)
        if m and not re.match(r"CKPT_|_DEFAULT_SOURCE$|_FILE_OFFSET_BITS$|_DARWIN_C_SOURCE$|_GNU_SOURCE$", m.group(1)):
            report(h.path, i, "defines %s, which does not begin with CKPT_" % m.group(1))


def check_contracts(h):
    root = os.path.dirname(os.path.abspath(h.path))
    users = ""
    for folder, dirs, files in os.walk(os.path.join(root, "tests")):
        dirs[:] = [d for d in dirs if d not in ("cases", "golden", "corpus")]
        for name in files:
            if name.endswith((".c", ".h", ".cpp", ".sh", ".py")):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
                    users += f.read()
    for i, line in enumerate(h.lines[:h.implementation], 1):
        m = re.match(r"CKPT__DECL\b.*?\b(ckpt_\w+)\s*\(", line)
        if not m:
            continue
        above = i - 2
        while above >= 0 and (h.lines[above].startswith("CKPT__DECL") or re.match(r"\s+\S.*\);$", h.lines[above])):
            above -= 1
        if not h.lines[above].startswith("//") or h.lines[above].startswith("//---"):
            report(h.path, i, "%s has no contract above its declaration" % m.group(1))
        if not re.search(r"\b%s\b" % m.group(1), users):
            report(h.path, i, "%s is used by no test" % m.group(1))
        if m.group(1) not in h.by_name:
            report(h.path, i, "%s is declared and not defined" % m.group(1))


def check_other_files(root):
    for folder, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d not in (".git", "build", "cases", "golden", "corpus", "data", "__pycache__", "servers")]
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not name.endswith((".c", ".cpp", ".h", ".py", ".sh", ".md", ".yml")) or path == os.path.join(root, "ckpt.h"):
                continue
            with open(path, encoding="utf-8", errors="surrogateescape") as f:
                for i, line in enumerate(f, 1):
                    line = line.rstrip("\n")
                    if line != line.rstrip() and not name.endswith(".md"):
                        report(path, i, "ends in blanks")
                    if name.endswith((".c", ".cpp", ".h")) and len(line) > 180:
                        report(path, i, "has %d columns, more than 180" % len(line))
                    if "\t" in line and name.endswith((".c", ".cpp", ".h", ".py")):
                        report(path, i, "holds a tab")
                    if re.search(r"\b(TODO|FIXME)\b", line) and name != "lint.py":
                        report(path, i, "leaves something to do")


def draw(h):
    check_calls(h)
    rows = {}
    for s in h.sections:
        r = rows.setdefault(s.name, [0, 0, {}])
        r[0] += s.last - s.line + 1
        r[1] += sum(1 for f in h.functions if f.section is s)
        for to, pairs in s.calls.items():
            r[2].setdefault(to, set()).update(pairs)
    print("%-16s %6s %6s  uses (calls)" % ("section", "lines", "funcs"))
    for name, (lines, count, calls) in rows.items():
        to = ["%s(%d)" % (t, len(calls[t])) for t in rows if t in calls]
        print("%-16s %6d %6d  %s" % (name, lines, count, " ".join(to)))
    lengths = sorted(f.last - f.first + 1 for f in h.functions)
    if lengths:
        print("%d lines; %d functions: median %d, 95 %% %d, longest %d lines" % (len(h.lines), len(lengths), lengths[len(lengths) // 2],
              lengths[int(len(lengths) * 0.95)], lengths[-1]))


def main(args):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = next((a for a in args if a.endswith(".h")), os.path.join(root, "ckpt.h"))
    h = Header(path)
    if "--map" in args:
        draw(h)
        return 0
    if "--calls" in args:
        name = args[args.index("--calls") + 1]
        for f in h.functions:
            if re.search(r"\b%s\b" % name, f.body) and f.name != name:
                print("%5d %s calls %s" % (f.first, f.name, name))
        for callee in sorted(set(re.findall(r"\bckpt_\w+\b", h.by_name[name].body)) & set(h.by_name) - {name}):
            print("      %s calls %s" % (name, callee))
        return 0
    for check in (check_text, check_version, check_calls, check_functions, check_statements, check_preprocessor, check_contracts):
        check(h)
    if os.path.abspath(path) == os.path.join(root, "ckpt.h"):
        check_other_files(root)
    for where, line, text in sorted(bad):
        print("%s:%d: %s" % (os.path.relpath(where, root) if os.path.abspath(where).startswith(root) else where, line, text))
    print("%d violations" % len(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
