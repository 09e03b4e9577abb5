# apart.awk: takes ckpt.h apart (and fault/faults.h), so that run.sh compiles the library once for many tests:
# awk -v part=whole prints it with private functions that other files can call, part=head with the declarations of its functions and
# variables. Lines keep their numbers.
# It relies on how the two are written: what stands in column 0 begins there, and a function's body ends with a } in column 0.
function begins() {
    return /^(static|CKPT__DECL|CKPT__TIME_MATH|FAULT_FN) / && !/^static inline / && /\(/ && !/^[^(]*=/ && !/;( *\/\/.*)?$/
}
BEGIN { inside = all }
/^\/\/ >>implementation/ { inside = 1 }
!inside { print; next }
body { if (/^}/) body = 0; print part == "whole" ? $0 : ""; next }
# A variable. Constants, which have a value, are left as they are: each file has its own.
/^static .*;( *\/\/.*)?$/ && !/^static ([a-z_]+ )*const .*=/ {
    sub(/^static /, part == "whole" ? "" : "extern ")
    if (part == "head") sub(/ = [^;]*;/, ";")
    print
    next
}
begins() { sub(/^(static|CKPT__TIME_MATH|FAULT_FN) /, ""); head = 1 }
head && /\) \{.*\}$/ { if (part == "head") sub(/\) \{.*/, ");"); print; head = 0; next }
head && /\{$/ { if (part == "head") sub(/ \{$/, ";"); print; head = 0; body = 1; next }
{ print }
