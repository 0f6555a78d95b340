package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInvocation proves that the words of a shell's command line are read as bash
// reads them, and what is judged then.
func TestInvocation(t *testing.T) {
	for _, c := range []struct{ args, command string }{
		{"-c|ls", "ls"}, {"-lc|ls", "ls"}, {"-l|-c|ls", "ls"}, {"-c|-l|ls", "ls"}, {"-ic|ls", "ls"},
		{"--norc|--noprofile|-c|ls", "ls"}, {"--login|-c|ls", "ls"}, {"-c|--|ls", "ls"}, {"--rcfile|x|-c|ls", "ls"},
		{"-c|echo $1|name", "echo $1"},
		{"-c|echo $1|name|a b|-x", "set -- 'a b' -x; echo $1"},
		{"-euo|pipefail|-c|ls", "set -e -u -o pipefail; ls"},
		{"+e|-c|ls|n|a", "set +e -- a; ls"},
		{"-O|extglob|-c|ls", "shopt -s extglob; ls"},
		{"-c|-- ls", "-- ls"},
		{"script.sh|a|-c", "bash script.sh a -c"},
		{"-e|./x y", "bash -e './x y'"},
		{"-|script.sh", "bash script.sh"},
	} {
		v, err := parseInvocation(strings.Split(c.args, "|"))
		if c.args == "-c|-- ls" { // an option that bash refuses, too
			if err == nil {
				t.Errorf("%s: %q", c.args, v.command())
			}
			continue
		}
		if err != nil || v.command() != c.command {
			t.Errorf("%s: %q, %v, want %q", c.args, v.command(), err, c.command)
		}
	}
	for _, args := range []string{"-c", "-o", "--rcfile", "-Z", "--nosuch", "-l|-c"} {
		if v, err := parseInvocation(strings.Split(args, "|")); err == nil {
			t.Errorf("%s: %q", args, v.command())
		}
	}
	for _, args := range []string{"-s|a|b", "-es|a|b"} {
		if v, err := parseInvocation(strings.Split(args, "|")); err != nil || !v.readsStdin || len(v.arguments) != 2 {
			t.Errorf("%s: %+v, %v", args, v, err)
		}
	}
}

// snippetFiles is what the snippets find in their directory.
var snippetFiles = map[string]string{
	"a.txt": "alpha one\nbeta two\ngamma three\n", "b.txt": "alpha one\nbeta 2\n", "c.csv": "x:3\ny:1\nz:2\n",
	"n.txt": "3\n1\n2\n2\n", "j.json": "{\"a\": [1, 2]}\n", "sub/d.txt": "deep\n",
}

// TestSnippets proves that text does the same under pinfold sh as under bash: the
// same bytes on stdout and stderr, and the same status. It takes every sixth text,
// and all with $PINFOLD_SNIPPETS=all.
func TestSnippets(t *testing.T) {
	data, err := os.ReadFile("testdata/snippets.txt")
	if err != nil {
		t.Fatal(err)
	}
	snippets := strings.Split(strings.TrimSuffix(string(data), "\n%%\n"), "\n%%\n")
	if len(snippets) < 300 {
		t.Fatalf("only %d snippets", len(snippets))
	}
	every := 6
	if os.Getenv("PINFOLD_SNIPPETS") == "all" {
		every = 1
	} else if testing.Short() {
		every = 30
	}
	s := newTestShell(t)
	for i := 0; i < len(snippets); i += every {
		text := snippets[i]
		want := s.run(t, "/bin/bash", "in1\nin2\n", "-c", text)
		got := s.run(t, s.shell, "in1\nin2\n", "-c", text)
		if got != want {
			t.Errorf("%s\n got %+v\nwant %+v", text, got, want)
		}
	}
}

// A testShell runs bash and pinfold sh in the same directory.
type testShell struct {
	project, shell string
	env            []string
}

// shellOutcome is what a shell's parent sees.
type shellOutcome struct {
	stdout, stderr string
	status         int // 128 and the signal's number for what a signal ended
}

func newTestShell(t *testing.T) *testShell {
	t.Helper()
	d := startDaemon(t)
	s := &testShell{project: d.callers(t)[0].project, shell: filepath.Join(d.root, "shim/bash")}
	if out, err := exec.Command(filepath.Join(bin, "pinfold"), "shim", "install", filepath.Dir(s.shell)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.env = []string{"HOME=" + os.Getenv("HOME"), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8", "TERM=dumb", "TMPDIR=/tmp", "PINFOLD_SOCKET=" + d.socket, "PINFOLD_UNATTENDED=1"}
	s.fresh(t)
	return s
}

// fresh gives the project the files of the snippets, and no others. The directory
// itself stays.
func (s *testShell) fresh(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(s.project)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".git" {
			_ = os.RemoveAll(filepath.Join(s.project, e.Name()))
		}
	}
	for name, content := range snippetFiles {
		name = filepath.Join(s.project, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a shell under the name bash with fresh files.
func (s *testShell) run(t *testing.T, shell, stdin string, args ...string) shellOutcome {
	t.Helper()
	s.fresh(t)
	cmd, out, errOut := s.command(shell, args...)
	cmd.Stdin = strings.NewReader(stdin)
	return outcomeOf(t, cmd.Run(), out, errOut)
}

func (s *testShell) command(shell string, args ...string) (cmd *exec.Cmd, out, errOut *bytes.Buffer) {
	cmd = exec.Command(shell, args...)
	if cmd.Args[0] = "bash"; shell != "/bin/bash" {
		cmd.Args[0] = shell
	}
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.project, s.env, out, errOut
	return cmd, out, errOut
}

func outcomeOf(t *testing.T, err error, out, errOut *bytes.Buffer) shellOutcome {
	t.Helper()
	o := shellOutcome{stdout: out.String(), stderr: errOut.String()}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		st := failed.Sys().(syscall.WaitStatus)
		if o.status = st.ExitStatus(); st.Signaled() {
			o.status = exitBySignal + int(st.Signal())
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestShellForms proves for each form of invocation that it does what bash does.
func TestShellForms(t *testing.T) {
	s := newTestShell(t)
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"-c", "echo \"$1\" $#", "name", "a  b", "c"}},
		{"", []string{"-euo", "pipefail", "-c", "false | true; echo no"}},
		{"", []string{"-fc", "echo *; exit 3"}},
		{"", []string{"-c", "-l", "pwd; exit 7"}},
		{"", []string{"--norc", "--noprofile", "-c", "seq 3"}},
		{"echo from stdin $1\necho 2\nexit 4\n", []string{"-s", "x"}},
		{"echo plain\n", nil},
		{"", []string{"-c", ""}},
		{strings.Repeat("0123456789abcde\n", 1<<16), []string{"-c", "md5sum"}},
		{"", []string{"-c", "seq 200000"}},
	} {
		want := s.run(t, "/bin/bash", c.stdin, c.args...)
		if got := s.run(t, s.shell, c.stdin, c.args...); got != want {
			t.Errorf("%q: got %.300v\nwant %.300v", c.args, got, want)
		}
	}
	if got := s.run(t, s.shell, "", "-c", "curl http://localhost"); got.status != exitRefused || !strings.Contains(got.stderr, "network client") {
		t.Errorf("a denied command: %+v", got)
	}
}

// TestShellSignals proves that signals reach the command, that a client which is
// killed ends it, and that a stream that nobody reads does.
func TestShellSignals(t *testing.T) {
	s := newTestShell(t)
	for _, c := range []struct {
		signal syscall.Signal
		text   string
		status int
		stdout string
	}{
		{unix.SIGTERM, "echo ready; sleep 60", exitBySignal + 15, "ready\n"},
		{unix.SIGINT, "echo ready; sleep 60", exitBySignal + 2, "ready\n"},
		{unix.SIGTERM, "trap 'echo got; exit 5' TERM; echo ready; sleep 60 & wait", 5, "ready\ngot\n"},
	} {
		cmd, out, errOut := s.command(s.shell, "-c", c.text)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = write
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		write.Close()
		buf := make([]byte, 6)
		n, _ := read.Read(buf)
		out.Write(buf[:n])
		_ = cmd.Process.Signal(c.signal)
		_, _ = out.ReadFrom(read)
		got := outcomeOf(t, cmd.Wait(), out, errOut)
		if got.status != c.status || got.stdout != c.stdout {
			t.Errorf("%v during %s: %+v", c.signal, c.text, got)
		}
	}

	mark := filepath.Join(s.project, "alive")
	cmd, _, _ := s.command(s.shell, "-c", "while sleep 0.1; do echo x >> alive; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(mark)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	waitUntil(t, "the command writes", func() bool { return size() > 0 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	waitUntil(t, "the command ended with its client", func() bool {
		before := size()
		time.Sleep(500 * time.Millisecond)
		return size() == before
	})

	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, _ = s.command(s.shell, "-c", "yes")
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	read.Close()
	if got := outcomeOf(t, cmd.Wait(), &bytes.Buffer{}, &bytes.Buffer{}); got.status != exitBySignal+int(unix.SIGPIPE) {
		t.Errorf("stdout that nobody reads: status %d", got.status)
	}
}

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestShellWrapped proves that of an agent's wrapper the command alone is judged and
// run, and that the agent's files say what came of it.
func TestShellWrapped(t *testing.T) {
	s := newTestShell(t)
	mark := filepath.Join("/tmp", "claude-"+strconv.FormatInt(time.Now().UnixNano(), 16)+"-cwd")
	t.Cleanup(func() { os.Remove(mark) })
	wrap := func(command string) string {
		return `source /root/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true && \builtin shopt -u extglob 2>/dev/null || true && ` +
			`{ \builtin unalias -- 'which'; \builtin unset -f -- 'which'; } >/dev/null 2>&1 || true && ` +
			`{ \builtin unalias -- 'unsetenv'; \builtin unset -f -- 'unsetenv'; } >/dev/null 2>&1 || true && ` +
			`eval ` + quote(command) + ` < /dev/null && pwd -P >| ` + mark
	}
	got := s.run(t, s.shell, "not for it", "-c", wrap("cat; cd sub; echo 'it'; pwd"))
	where := filepath.Join(s.project, "sub")
	if got.status != 0 || got.stdout != "it\n"+where+"\n" {
		t.Errorf("wrapped: %+v", got)
	}
	if data, err := os.ReadFile(mark); err != nil || string(data) != where+"\n" {
		t.Errorf("%s holds %q, %v", mark, data, err)
	}
	if got := s.run(t, s.shell, "", "-c", wrap("cd sub; exit 3")); got.status != 3 {
		t.Errorf("a status: %+v", got)
	}
	if got := s.run(t, s.shell, "", "-c", wrap("sudo ls")); got.status != exitRefused {
		t.Errorf("a denied command: %+v", got)
	}
	if got := s.run(t, s.shell, "", "-c", wrap("ls")+"; ls"); got.status != exitRefused {
		t.Errorf("what is no wrapper: %+v", got)
	}
	os.Remove(mark)
	victim := filepath.Join(s.project, "victim")
	if err := os.Symlink(victim, mark); err != nil {
		t.Fatal(err)
	}
	s.run(t, s.shell, "", "-c", wrap("true"))
	if _, err := os.Lstat(victim); err == nil {
		t.Error("a symlink in place of the agent's file was followed")
	}
}

// TestShims proves that the names are made and taken away, and that others' files
// stay.
func TestShims(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(bin, "pinfold")
	for range 2 {
		if err := installShims(dir, own); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range shellNames {
		if target, err := os.Readlink(filepath.Join(dir, name)); err != nil || target != own {
			t.Errorf("%s: %s, %v", name, target, err)
		}
	}
	if err := removeShims(dir, own); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bash"), []byte("mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := installShims(dir, own); err == nil {
		t.Error("another's bash was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "bash" }) || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
