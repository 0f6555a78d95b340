package confine

import (
	"testing"
	"time"
)

// TestTools: what people run all day works under the widest grant, each with the
// real tool, where it is installed. With -short the unprivileged daemon runs every
// third only, and neither go.
func TestTools(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		for i, row := range tools {
			if testing.Short() && (row.name == "go" || !b.m.system && i%3 != 0) {
				continue // go compiles all of its library first
			}
			t.Run(row.name, func(t *testing.T) {
				needs(t, row.needs...)
				b := box{b.m, b.caller, newProject(t, b.caller, b.caller.Home)}
				r := b.do(t, widest, row.text, func(r *Request) { r.Timeout = 5 * time.Minute })
				if r.ExitCode == 127 && len(row.needs) > 0 {
					t.Skipf("%v is not for %s", row.needs, b.caller.Name)
				}
				if r.out != row.want || r.ExitCode != 0 {
					t.Errorf("exit %d %q, want %q\n%s", r.ExitCode, r.out, row.want, r.err)
				}
			})
		}
	})
}

// tools are commands with what they print.
var tools = []struct {
	name  string
	needs []string
	text  string
	want  string
}{
	{"make and cc", []string{"make", "cc"}, `printf 'int main(){return 0;}' > a.c; printf 'a: a.c\n\t@cc -o a a.c\n' > Makefile; make -s && ./a && echo ok`, "ok\n"},
	{"address sanitizer", []string{"cc"}, `printf '#include <stdlib.h>\n#include <stdio.h>\nint main(){char*p=malloc(3);puts("ran");free(p);return 0;}' > a.c; cc -fsanitize=address -o a a.c && ./a`, "ran\n"},
	{"cmake", []string{"cmake", "cc"}, `printf 'int main(){return 0;}' > a.c; printf 'cmake_minimum_required(VERSION 3.10)\nproject(a C)\nadd_executable(a a.c)\n' > CMakeLists.txt; cmake -S . -B b >/dev/null && cmake --build b >/dev/null && b/a && echo ok`, "ok\n"},
	{"gdb", []string{"gdb", "cc"}, `printf 'int main(){return 0;}' > a.c; cc -g -o a a.c && gdb -batch -ex 'break main' -ex run -ex 'print 6*7' ./a 2>/dev/null | tail -1`, "$1 = 42\n"},
	{"node", []string{"node"}, `node -e 'console.log(6*7, require("os").cpus().length > 0)'`, "42 true\n"},
	{"npm test", []string{"npm"}, `echo '{"name":"a","version":"1.0.0","scripts":{"test":"echo tested"}}' > package.json; npm test -s`, "tested\n"},
	{"python unittest", []string{"python3"}, `printf 'import unittest\nclass T(unittest.TestCase):\n def test(self): self.assertEqual(1,1)\n' > test_a.py; python3 -m unittest -q 2>&1 | tail -1`, "OK\n"},
	{"venv", []string{"python3"}, `python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'`, "True\n"},
	{"pytest", []string{"pytest"}, `echo 'def test_a(): assert 1' > test_a.py; /usr/bin/python3 -m pytest -q 2>&1 | grep -o '1 passed'`, "1 passed\n"},
	{"go", []string{"/usr/local/go/bin/go"}, `printf 'module a\ngo 1.20\n' > go.mod; printf 'package a\nimport "testing"\nfunc TestA(t *testing.T) {}\n' > a_test.go; go test . 2>&1 | cut -f1,2`, "ok  \ta\n"},
	{"sqlite3", []string{"sqlite3"}, `sqlite3 a.db 'pragma journal_mode=wal; create table t(x); insert into t values(42); select x from t'`, "wal\n42\n"},
	{"unix socket", []string{"python3"}, `python3 -c '
import socket, threading
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen()
def serve():
    c, _ = s.accept(); c.sendall(b"hello"); c.close()
t = threading.Thread(target=serve); t.start()
c = socket.socket(socket.AF_UNIX); c.connect("sock"); print(c.recv(9).decode()); t.join()'`, "hello\n"},
	{"tcp on loopback", []string{"python3"}, `python3 -c '
import socket, threading
s = socket.socket(); s.bind(("localhost", 0)); s.listen()
def serve():
    c, _ = s.accept(); c.sendall(b"hello"); c.close()
t = threading.Thread(target=serve); t.start()
c = socket.create_connection(("127.0.0.1", s.getsockname()[1])); print(c.recv(9).decode()); t.join()'`, "hello\n"},
	{"java", []string{"java", "javac"}, `echo 'class A { public static void main(String[] a) { System.out.println(6*7); } }' > A.java; javac A.java && java A`, "42\n"},
	{"mktemp", nil, `f=$(mktemp) && echo x > "$f" && cat "$f"; d=$(mktemp -d) && touch "$d/x" && ls "$d"`, "x\nx\n"},
	{"ps", []string{"ps"}, `ps -o comm= -p $$; true`, "bash\n"},
	{"tput", []string{"tput"}, `tput -T xterm cols; tput -T xterm bold | od -An -c | tr -d ' '`, "80\n033[1m\n"},
	{"locale", []string{"locale"}, `locale 2>&1 | head -1; printf 'ä' | wc -m`, "LANG=C.UTF-8\n1\n"},
	{"env shebang", []string{"python3"}, `printf '#!/usr/bin/env python3\nprint(42)\n' > a; chmod +x a; ./a`, "42\n"},
	{"process substitution", []string{"diff"}, `diff <(echo a) <(echo a) && echo same`, "same\n"},
	{"no terminal", nil, `[ -t 0 ] || [ -t 1 ] || echo none`, "none\n"},
	{"which", []string{"which"}, `which ls; [ -x /usr/bin/ls ] && echo x; command -v ls`, "/usr/bin/ls\nx\n/usr/bin/ls\n"},
	{"cargo", []string{"cargo"}, `printf '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml; mkdir src; echo 'fn main() { println!("42"); }' > src/main.rs; cargo run -q`, "42\n"},
	{"cache that is kept", nil, `[ -e ~/.cache/kept ] || echo kept > ~/.cache/kept; cat ~/.cache/kept`, "kept\n"},
	{"background server", []string{"python3"}, `python3 -m http.server 8123 >/dev/null 2>&1 & for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:8123/").status)' 2>/dev/null && break; done`, "200\n"},
	{"7z", []string{"7z"}, `echo x > f; 7z a -bd a.7z f >/dev/null && 7z t a.7z | grep -c 'Everything is Ok'`, "1\n"},
	{"multiprocessing", []string{"python3"}, `python3 -c '
import multiprocessing as m
if __name__ == "__main__":
    with m.Pool(2) as p: print(sum(p.map(abs, [-1, -2])))'`, "3\n"},
}
