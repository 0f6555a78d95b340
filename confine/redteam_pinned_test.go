package confine

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
)

// A snapshot is everything of a tree that a write could change.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) != nil {
			return nil
		}
		text := ""
		if st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			content, _ := os.ReadFile(path)
			text = string(content)
		}
		b.WriteString(strings.Join([]string{path, os.FileMode(st.Mode).String(), time.Unix(st.Mtim.Unix()).String(),
			time.Unix(st.Ctim.Unix()).String(), text}, "|") + "\n")
		return nil
	})
	return b.String()
}

// TestPinnedWritesNothing: programs that can write in some unusual way change
// nothing in the project or the caches, neither content nor metadata.
func TestPinnedWritesNothing(t *testing.T) {
	rows := []struct{ programs, text string }{
		{"find", `find . -name file -fprintf out %p; find . -name file -fls out; find . -fprint0 file; find . -name file -delete`},
		{"sort", `sort -o file file; sort -T . file; sort -S 1k --parallel=2 -T . big > /dev/null`},
		{"sed", `sed -i s/a/b/ file; sed -n 'w out' file; sed 's/o/x/w out' file; sed -i.bak 1d file`},
		{"gawk mawk awk", `awk '{print > "out"}' file; awk 'BEGIN{printf "x" >> "file"; close("file")}'; awk 'BEGIN{print "x" | "cat > out"}'`},
		{"git", `git diff --output=out; git log --output=out; git config x.y z; git config --global x.y z; git init sub; git add file; git update-ref refs/heads/x HEAD; git gc; git stash; git checkout -b y; git archive -o out HEAD; git bundle create out HEAD; git format-patch -o . HEAD`},
		{"tee uniq split csplit", `echo x | tee file out; uniq file out; split -b 1 file; csplit file 1`},
		{"install cp ln mv dd truncate shred", `install file out; cp -p file out; cp -al file out; ln file out; ln -s file out; mv file out; dd if=file of=out; truncate -s 1 file; shred -u file`},
		{"touch chmod chown chgrp setfattr setfacl", `touch -a file; touch -m -d 2001-01-01 file; touch -h link; chmod u+s file; chmod 777 . file; chown "$UID" file; chgrp "$(id -g)" file; setfattr -n user.x -v 1 file; setfacl -m u::rwx file`},
		{"mkfifo mknod mkdir rmdir rm unlink mktemp", `mkfifo out; mknod out p; mkdir out; rmdir dir; rm -f file; unlink file; mktemp -p .`},
		{"tar gzip zip patch", `tar cf out.tar file; tar xf archive.tar; gzip file; zip out.zip file; patch file /dev/null`},
		{"", `echo x > file; echo x >> file; echo x >| file; : > out; exec 9<> file; exec 9>> out; printf x > dir/../out; umask 0; history -w out; HISTFILE=out; set -o history; history -a; BASH_XTRACEFD=9; read -r x < file`},
		{"", `for f in "$HOME"/.cache/f "$HOME"/.npm/f "$HOME"/f "$HOME"/.bashrc; do echo x > $f; done`},
	}
	each(t, func(t *testing.T, b box) {
		gitRepository(t, b)
		for name, content := range map[string]string{"file": "foo\n", "dir/f": "bar\n", "big": strings.Repeat("line\n", 50000), "archive.tar": ""} {
			writeFile(t, b.caller, b.project+"/"+name, content, 0o666)
		}
		os.Symlink("file", b.project+"/link")
		os.Chmod(b.project, 0o777)
		b.run(t, widest, `echo x > "$HOME/.cache/f"; git -c user.name=x -c user.email=x add -A && git -c user.name=x -c user.email=x@x commit -qm x`)
		before := snapshot(t, b.project) + snapshot(t, filepath.Join(b.m.stateDir, "cache"))
		for _, row := range rows {
			g := policy.Grant{}
			for _, p := range append(strings.Fields(row.programs), "git") {
				if path, err := filepath.EvalSymlinks("/usr/bin/" + p); err == nil {
					g.Exec = append(g.Exec, path)
				}
			}
			if strings.HasPrefix(row.programs, "git") {
				g.Exec = append(g.Exec, "/usr/lib/git-core/git")
			}
			r := b.run(t, g, row.text)
			if after := snapshot(t, b.project) + snapshot(t, filepath.Join(b.m.stateDir, "cache")); after != before {
				t.Fatalf("%s: something changed: %+v\n%s\n---\n%s", row.text, r, before, after)
			}
		}
	})
}

// TestPinnedMapsNoCode: no hook of bash, the C library or a listed program makes
// a pinned command run other code.
func TestPinnedMapsNoCode(t *testing.T) {
	needs(t, "gcc", "git")
	const lib = `
#include <unistd.h>
__attribute__((constructor)) static void f(void) { (void)!write(1, "ESCAPE\n", 7); }
int gconv_init(void *s) { (void)s; return 0; }
int gconv(void) { return 0; }
int dl_load(void *a, void *b) { (void)a; (void)b; return 0; }
int plugin_is_GPL_compatible;
struct builtin { char *name; int (*f)(void *); int flags; char **doc; char *s; char *h; };
static int e(void *l) { (void)l; return 0; }
struct builtin evil_struct = { "evil", e, 1, 0, "evil", 0 };`
	each(t, func(t *testing.T, b box) {
		gitRepository(t, b)
		writeFile(t, b.caller, b.project+"/lib.c", lib, 0o644)
		writeFile(t, b.caller, b.project+"/gconv-modules", "module EVIL// INTERNAL lib 1\nmodule INTERNAL EVIL// lib 1\n", 0o644)
		writeFile(t, b.caller, b.project+"/script", "#!/bin/sh\n/usr/bin/id >/dev/null && echo ESCAPE\n", 0o755)
		writeFile(t, b.caller, b.project+"/bashscript", "#!/bin/bash\n/usr/bin/id >/dev/null && echo ESCAPE\n", 0o755)
		writeFile(t, b.caller, b.project+"/f.x", "x\n", 0o644)
		writeFile(t, b.caller, b.project+"/.gitattributes", "*.x diff=evil filter=evil merge=evil\n", 0o644)
		setup := b.run(t, widest, `gcc -shared -fPIC -o lib.so lib.c && cp lib.so /tmp/lib.so && cp lib.so /var/tmp/lib.so && cp lib.so "$HOME/.cache/lib.so" && cp lib.so libc.so.6 && mkdir -p glibc-hwcaps/x86-64-v2 && cp lib.so glibc-hwcaps/x86-64-v2/libselinux.so.1 && cp lib.so libselinux.so.1 && cp lib.so lib2.so && LD_PRELOAD=/var/tmp/lib.so /usr/bin/true`)
		if !strings.Contains(setup.out, "ESCAPE") {
			t.Fatalf("the control does not run: %+v", setup)
		}
		// outside, where nothing protects it
		b.outside(t, `git add -A; git -c user.name=x -c user.email=x@x commit -qm x; echo y >> f.x
for k in core.fsmonitor diff.evil.textconv diff.evil.command diff.external filter.evil.clean filter.evil.smudge filter.evil.process core.pager core.editor core.sshCommand core.gitProxy gpg.program diff.evil.cachetextconv alias.st alias.status alias.diff interactive.diffFilter credential.helper uploadpack.packObjectsHook core.askPass; do git config $k "$PWD/script"; done
git config filter.evil.required true; git config core.hooksPath "$PWD"; git config alias.st "!$PWD/script"; cp script post-index-change; cp script post-checkout; cp script pre-commit`)
		g := pinned(t, "ls", "cat", "grep", "find", "sort", "sed", "git", "env", "xargs", "tar", "iconv", "head", "awk", "timeout", "nice", "diff", "file", "less", "cp")
		g.Exec = append(g.Exec, "/usr/lib/git-core/git")
		for _, text := range []string{
			// the loader
			"LD_PRELOAD=/var/tmp/lib.so ls", `LD_PRELOAD="$HOME/.cache/lib.so" ls`, "LD_LIBRARY_PATH=$PWD ls", "LD_LIBRARY_PATH=$PWD cat f.x",
			"LD_AUDIT=$PWD/lib.so cat f.x", "LD_PRELOAD=/proc/self/fd/9 ls 9< lib.so", "LD_PRELOAD=/dev/fd/9 ls 9< lib.so", "LD_PRELOAD=/proc/self/cwd/lib.so ls",
			"/lib64/ld-linux-x86-64.so.2 --preload ./lib.so /usr/bin/ls", "/lib64/ld-linux-x86-64.so.2 --library-path . /usr/bin/ls", "/lib64/ld-linux-x86-64.so.2 --audit ./lib.so /usr/bin/ls",
			"/lib64/ld-linux-x86-64.so.2 ./lib.so", "/lib64/ld-linux-x86-64.so.2 /usr/bin/id && echo ESCAPE", "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=1 LD_LIBRARY_PATH=. ls",
			// character sets, locales, messages
			"GCONV_PATH=$PWD iconv -f EVIL -t UTF-8 f.x", "GCONV_PATH=$PWD LC_ALL=xx_XX.EVIL ls", "LOCPATH=$PWD LC_ALL=evil ls", "NLSPATH=$PWD/%N LANGUAGE=evil ls", "OUTPUT_CHARSET=EVIL GCONV_PATH=$PWD LC_ALL=C.UTF-8 git status",
			// bash
			"enable -f ./lib.so evil", "enable -f /var/tmp/lib.so evil", "BASH_LOADABLES_PATH=$PWD enable -f lib.so evil", "enable -f /proc/self/fd/9 evil 9< lib.so",
			"BASH_ENV=./bashscript bash -c :", "ENV=./script bash --posix -i -c :", ". ./bashscript", "exec -a bash ./script", "./script", "./bashscript", "coproc ./script", "trap ./script EXIT", "command_not_found_handle() { /usr/bin/id && echo ESCAPE; }; nosuch",
			"mapfile -C ./script -c 1 < f.x", "PROMPT_COMMAND=./script bash -i -c :", "PS4='$(./script)'; set -x; :", "cat <(./script)", "ls > >(./script)",
			"exec 9<>/tmp/x; cat script >&9; /proc/self/fd/9", "cp script /tmp/s; /tmp/s", "cp lib.so /tmp/l; LD_PRELOAD=/tmp/l ls", "cat lib.so > /dev/shm/l && LD_PRELOAD=/dev/shm/l ls",
			// listed programs that start others
			"env ./script", "xargs ./script < f.x", "timeout 5 ./script", "nice ./script", "find . -maxdepth 0 -exec ./script \\;", "find . -maxdepth 0 -execdir ./script \\;", "sort --compress-program=./script -S 1k big", "tar --to-command=./script -xf x.tar", "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec=./script f.x", "tar -I ./script -cf /dev/null f.x", "tar --rsh-command=./script -cf host:x f.x", "sed '1e ./script' f.x", "sed 's/x/.\\/script/e' f.x", `awk 'BEGIN{system("./script")}'`, `awk 'BEGIN{"./script" | getline x; print x}'`, `awk 'BEGIN{print "x" |& "./script"}'`, "LESSOPEN='|./script %s' less f.x", "less f.x", "awk -l ./lib.so 'BEGIN{}'", "AWKLIBPATH=$PWD awk -l lib 'BEGIN{}'", "diff --to-file=script f.x", "file -m script f.x", "cat /proc/self/exe > /tmp/c; /tmp/c -c 'echo ESCAPE'",
			// git by the repository's configuration and by variables
			"git status", "git diff", "git log -p --ext-diff --textconv", "git show", "git st", "git grep -O./script x", "git blame f.x", "git -c core.fsmonitor=./script status", "git -c diff.external=./script diff", "git -c alias.x='!./script' x", "GIT_EXTERNAL_DIFF=./script git diff", "GIT_PAGER=./script git -p log", "PAGER=./script git -p log", "GIT_EDITOR=./script git commit", "GIT_ASKPASS=./script git fetch", "GIT_SSH_COMMAND=./script git fetch ssh://x/y", "GIT_EXEC_PATH=$PWD git status", "git --exec-path=$PWD script", "git difftool -y -x ./script", "git bisect run ./script", "git submodule foreach ./script", "git rebase -x ./script HEAD", "git ls-remote ext::./script", "git clone -u ./script . /tmp/clone", "git archive --format=tar.x HEAD",
		} {
			r := b.run(t, g, text)
			if lines := "\n" + r.out + "\n" + r.err; strings.Contains(lines, "\nESCAPE\n") {
				t.Errorf("%s: %s%s", text, r.out, r.err)
			}
		}
	})
}

// TestPinnedReachesNobody: without sockets there is no way to another process,
// by bash's own files for networks either.
func TestPinnedReachesNobody(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		g := pinned(t, "cat")
		for _, text := range []string{
			"echo x > /dev/tcp/127.0.0.1/80", "echo x > /dev/udp/127.0.0.1/53", "exec 9<>/dev/tcp/localhost/22", "cat < /dev/tcp/127.0.0.1/80", "kill -9 1", "kill -0 1", "kill -STOP 1",
			"echo x > /proc/1/comm", "cat /proc/1/environ", "cat /proc/1/maps", "echo 1 > /proc/self/oom_score_adj", "echo x > /proc/self/comm", "echo core > /proc/sys/kernel/core_pattern", "ulimit -Hn 100000",
		} {
			if r := b.run(t, g, text); r.ExitCode == 0 {
				t.Errorf("%s: succeeded: %+v", text, r)
			}
		}
	})
}

// TestPlantedLinks: links and FIFOs that an earlier command left in the shared
// /tmp lead a later one nowhere.
func TestPlantedLinks(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		gitRepository(t, b)
		writeFile(t, b.caller, b.project+"/file", "old\n", 0o666)
		b.run(t, widest, `ln -s "$PWD/file" /tmp/out; ln -s "$PWD/.git/hooks/pre-commit" /tmp/hook; ln -s /etc/shadow /tmp/in; ln -s / /tmp/root; mkfifo /tmp/fifo; ln "$PWD/file" /tmp/hard; ln -s /proc/self/fd/1 /tmp/stdout; mkdir /tmp/d; ln -s "$PWD" /tmp/d/p`)
		g := pinned(t, "cat", "cp", "touch", "tee")
		for _, text := range []string{"echo new > /tmp/out", "echo new >> /tmp/out", "cp /dev/null /tmp/out", "touch /tmp/out; touch /tmp/d/p/new", "echo new | tee /tmp/d/p/file"} {
			b.run(t, g, text)
			if text2, _ := os.ReadFile(b.project + "/file"); string(text2) != "old\n" {
				t.Errorf("%s: the project was written", text)
			}
		}
		r := b.run(t, policy.Grant{Write: []string{"."}, Exec: g.Exec}, "echo evil > /tmp/hook; echo evil > /tmp/d/p/.git/config; cat /tmp/in /tmp/root/etc/shadow")
		if _, err := os.Lstat(b.project + "/.git/hooks/pre-commit"); err == nil || strings.Contains(r.out, "root:") {
			t.Errorf("through a link: %+v", r)
		}
		if config, _ := os.ReadFile(b.project + "/.git/config"); strings.Contains(string(config), "evil") {
			t.Error("the configuration was written through a link")
		}
		q, _, _ := b.request(g, "cat /tmp/fifo")
		q.Timeout = 300 * time.Millisecond
		if o, err := b.m.Run(t.Context(), q); err != nil || o.Ended != EndedTimeout {
			t.Errorf("a FIFO: %+v %v", o, err)
		}
	})
}
