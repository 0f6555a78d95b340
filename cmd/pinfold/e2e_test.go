package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/trace"
)

// bin is the directory of the real binaries: $PINFOLD_BIN, or where TestMain
// has built them.
var bin string

// testUser is an ordinary user that .ci/as-user makes.
const testUser = "pinfold-test"

func TestMain(m *testing.M) {
	testscript.Main(builder{m}, map[string]func(){"fake-daemon": fakeDaemon})
}

// A builder builds the binaries before it runs the tests, when nobody has.
type builder struct{ m *testing.M }

func (b builder) Run() int {
	if bin = os.Getenv("PINFOLD_BIN"); bin != "" {
		return b.m.Run()
	}
	dir, err := os.MkdirTemp("", "pinfold-bin-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // for other users
	}
	for _, args := range [][]string{{"-o", "pinfold", "../pinfold"}, {"-o", "pinfoldd", "../pinfoldd"}, {"-tags", "mcp", "-o", "pinfold-mcp", "../pinfold"}} {
		if err == nil {
			var out []byte
			args[len(args)-2] = filepath.Join(dir, args[len(args)-2])
			if out, err = exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = dir
	return b.m.Run()
}

// TestScripts runs the scripts, each with a daemon of its own that the client
// starts.
func TestScripts(t *testing.T) {
	if c, err := net.Dial("unix", api.SystemSocket); err == nil {
		c.Close()
		t.Skip("a daemon of this machine runs, which the client would use")
	}
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setupScript,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"daemon": daemonCommand,
			"await":  awaitCommand,
		},
	})
}

func setupScript(env *testscript.Env) error {
	runtime := filepath.Join(env.WorkDir, "run")
	for _, dir := range []string{runtime, filepath.Join(env.WorkDir, "home")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	env.Setenv("PATH", bin+":"+env.Getenv("PATH"))
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("XDG_RUNTIME_DIR", runtime)
	env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
	env.Setenv("TRACE", filepath.Join(env.WorkDir, "state/pinfold/trace.ndjson"))
	for _, name := range []string{"GIT_AUTHOR", "GIT_COMMITTER"} {
		env.Setenv(name+"_NAME", "test")
		env.Setenv(name+"_EMAIL", "test@localhost")
	}
	env.Defer(func() {
		if pid := daemonOf(runtime); pid != 0 {
			_ = end(pid)
		}
	})
	return nil
}

// daemonOf returns the process that serves the user's socket, 0 for none.
func daemonOf(runtime string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	d, err := api.NewClient(filepath.Join(runtime, "pinfold/agent.sock")).Connect(ctx)
	if err != nil {
		return 0
	}
	return d.PID
}

// daemonCommand is the scripts' "daemon": with "kill" or "stop" it ends the
// daemon; with "pid" it puts its process id into $DAEMON; with "none" it checks
// that there is none.
func daemonCommand(ts *testscript.TestScript, neg bool, args []string) {
	pid := daemonOf(ts.Getenv("XDG_RUNTIME_DIR"))
	if neg || len(args) != 1 {
		ts.Fatalf("usage: daemon kill|stop|pid|none")
	}
	if (pid == 0) != (args[0] == "none") {
		ts.Fatalf("the daemon is process %d", pid)
	}
	switch args[0] {
	case "kill":
		ts.Check(unix.Kill(pid, unix.SIGKILL))
		ts.Check(end(pid))
	case "stop":
		ts.Check(end(pid))
	case "pid":
		ts.Setenv("DAEMON", strconv.Itoa(pid))
	case "none":
	default:
		ts.Fatalf("daemon %s is not known", args[0])
	}
}

// awaitCommand is the scripts' "await": it waits until a file exists, or with !
// until no process has the text among its arguments.
func awaitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: await file, or ! await text")
	}
	holds := func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return err == nil }
	if neg {
		holds = func() bool { return !anyProcess(args[0]) }
	}
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("%s: not within 10 s", args[0])
		}
	}
}

// anyProcess reports whether a process has the text among its arguments.
func anyProcess(text string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte(text)) && !strings.HasPrefix(name, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			return true
		}
	}
	return false
}

// fakeDaemon is a program for the scripts: it serves the user's socket as a
// daemon of the build that its argument names, which knows nothing but its
// health, until SIGTERM.
func fakeDaemon() {
	socket := api.UserSocket()
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		panic(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM)
	go func() {
		<-stop
		l.Close()
		os.Exit(0)
	}()
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderBuild, os.Args[1])
		w.Header().Set(api.HeaderOnDemand, "1")
		if r.URL.Path != "/healthz" {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, `{"success":false,"error":{"code":"NOT_FOUND","message":"a fake"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"success":true}`)
	}))
}

// A testDaemon is a real daemon with directories of its own.
type testDaemon struct {
	root, socket, state string
	args                []string
	process             *exec.Cmd
	log                 *bytes.Buffer
	logged              chan struct{}
}

// startDaemon starts a daemon: root's for the machine, else the user's.
func startDaemon(t *testing.T) *testDaemon {
	t.Helper()
	root, err := os.MkdirTemp("", "pinfold-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &testDaemon{root: root, socket: filepath.Join(root, "run/agent.sock"), state: filepath.Join(root, "state")}
	d.args = []string{"--socket", d.socket, "--state", d.state}
	if os.Geteuid() != 0 {
		d.args = append(d.args, "--user")
	}
	d.start(t)
	t.Cleanup(func() { d.stop(t, unix.SIGTERM) })
	return d
}

// start starts the daemon and waits until it serves.
func (d *testDaemon) start(t *testing.T) {
	t.Helper()
	d.process = exec.Command(filepath.Join(bin, "pinfoldd"), d.args...)
	out, err := d.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.process.Start(); err != nil {
		t.Fatal(err)
	}
	d.log, d.logged = &bytes.Buffer{}, make(chan struct{})
	serves := make(chan struct{})
	go func() {
		defer close(d.logged)
		for s := bufio.NewScanner(out); s.Scan(); {
			d.log.WriteString(s.Text() + "\n")
			if strings.Contains(s.Text(), "serves "+d.socket) {
				close(serves)
			}
		}
	}()
	select {
	case <-serves:
	case <-d.logged:
		t.Fatalf("the daemon does not start:\n%s", d.log)
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon does not start within 20 s")
	}
}

// stop sends the signal and waits until the daemon has ended.
func (d *testDaemon) stop(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if d.process.ProcessState != nil {
		return
	}
	_ = d.process.Process.Signal(sig)
	<-d.logged
	if err := d.process.Wait(); err != nil && sig == unix.SIGTERM {
		t.Errorf("the daemon: %v\n%s", err, d.log)
	}
}

// restart starts the daemon anew with a site's policy.
func (d *testDaemon) restart(t *testing.T, policy string) {
	t.Helper()
	d.stop(t, unix.SIGTERM)
	file := filepath.Join(d.root, "policy.toml")
	if err := os.WriteFile(file, []byte(policy), 0o644); err != nil {
		t.Fatal(err)
	}
	d.args = append(d.args, "--policy", file)
	d.start(t)
}

// records returns the trace, which must hold.
func (d *testDaemon) records(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(d.state, "trace.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := trace.Verify(bytes.NewReader(data)); err != nil || !r.OK() {
		t.Fatalf("the trace does not hold: %+v, %v", r, err)
	}
	return data
}

// A testCaller is a user who calls, with a project of his own.
type testCaller struct {
	name       string
	credential *syscall.Credential // nil for the user who tests
	project    string
	daemon     *testDaemon
}

// callers returns who the daemon is tried with: the user who tests, and as root
// an ordinary user too, when there is one.
func (d *testDaemon) callers(t *testing.T) []*testCaller {
	t.Helper()
	own := &testCaller{name: "self", project: filepath.Join(d.root, "self"), daemon: d}
	list := []*testCaller{own}
	if out, err := exec.Command("id", "-u", testUser).Output(); os.Geteuid() == 0 && err == nil {
		uid, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &testCaller{name: testUser, project: filepath.Join(d.root, "other"), daemon: d,
			credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}})
	}
	for _, c := range list {
		c.makeProject(t)
	}
	return list
}

// makeProject makes a git repository with a Go module in it.
func (c *testCaller) makeProject(t *testing.T) {
	t.Helper()
	if err := os.Mkdir(c.project, 0o755); err != nil {
		t.Fatal(err)
	}
	if c.credential != nil {
		if err := os.Chown(c.project, int(c.credential.Uid), int(c.credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	const script = `set -e
git init -q .
printf 'module example\n\ngo 1.26\n' >go.mod
printf 'package example\n\nfunc main() { println("foo") }\n' >main.go
printf 'package example\n\n// foo is foo.\nconst foo = 1\n' >foo.go
touch f x; mkdir sub
printf 'package main\n\nfunc main() {}\n' >sub/main.go
git add .
git -c user.name=t -c user.email=t@localhost commit -qm first`
	if out, err := c.command("bash", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// command returns a program to be run as the caller, in the project.
func (c *testCaller) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.project
	cmd.Env = append(os.Environ(), "PINFOLD_SOCKET="+c.daemon.socket, "HOME="+c.daemon.root, "GIT_CONFIG_GLOBAL=/dev/null")
	if c.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.credential}
	}
	return cmd
}

// pinfold runs the client as the caller.
func (c *testCaller) pinfold(args ...string) (stdout, stderr string, status int) {
	cmd := c.command(filepath.Join(bin, "pinfold"), args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		return "", err.Error(), -1
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

// TestTable runs commands through the real client, socket, daemon and kernel.
func TestTable(t *testing.T) {
	d := startDaemon(t)
	for _, c := range d.callers(t) {
		t.Run(c.name, func(t *testing.T) {
			for _, row := range []struct {
				command string
				verdict string
				out     string // part of the output of a command that is allowed
			}{
				{`cat /etc/passwd`, "deny", ""},
				{`cat ../x`, "deny", ""},
				{`cat $HOME/.ssh/id_rsa`, "deny", ""},
				{`ls | xargs rm -rf`, "deny", ""},
				{`sh -c 'curl http://x'`, "deny", ""},
				{`echo $(wget x)`, "deny", ""},
				{`echo x > /dev/sda`, "deny", ""},
				{`chmod 0777 f`, "deny", ""},
				{`\r\m -r -f x`, "deny", ""},
				{`sudo ls`, "deny", ""},
				{`npm install`, "require_approval", ""},
				{`git status`, "allow", "nothing to commit, working tree clean"},
				{`grep -rn foo . | head -5`, "allow", "foo.go:3:"},
				{`echo 'rm -rf /'`, "allow", "rm -rf /"},
				{`python3 -c 'print(1)'`, "allow", "1"},
				{`for f in *.go; do wc -l "$f"; done`, "allow", "4 foo.go\n3 main.go"},
				{`git log --format='%(trailers)' -3`, "allow", ""},
				{`go build ./... 2>&1 | tail -5`, "allow", ""},
			} {
				checked := map[string]int{"allow": exitOK, "require_approval": exitAsk, "deny": exitRefused}[row.verdict]
				ran := exitRefused
				if row.verdict == "allow" {
					ran = exitOK
				}
				if out, problems, status := c.pinfold("check", row.command); status != checked {
					t.Errorf("check %s: status %d, want %d\n%s%s", row.command, status, checked, out, problems)
				}
				out, problems, status := c.pinfold("run", "--unattended", row.command)
				if status != ran || !strings.Contains(out, row.out) {
					t.Errorf("run %s: status %d, want %d with %q\n%s%s", row.command, status, ran, row.out, out, problems)
				}
				if row.verdict != "allow" && (out != "" || !strings.Contains(problems, "what to do: ") || !strings.Contains(problems, "at line 1, column ")) {
					t.Errorf("run %s: output %q, refusal\n%s", row.command, out, problems)
				}
			}
			if out, err := c.command("git", "status", "--porcelain").CombinedOutput(); err != nil || len(out) != 0 {
				t.Errorf("the project afterwards: %v\n%s", err, out)
			}
		})
	}
	d.records(t)
}

// hang starts a command that lasts, tells its mark, by which its processes are
// found, and returns the client.
func (c *testCaller) hang(t *testing.T, mark string) *exec.Cmd {
	t.Helper()
	client := c.command(filepath.Join(bin, "pinfold"), "run", "--timeout", "60", "echo started; sleep "+mark)
	out, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" || err != nil {
		t.Fatalf("got %q, %v", line, err)
	}
	eventually(t, "the command runs", func() bool { return anyProcess("\x00" + mark) })
	return client
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// TestKilledClient: its command ends, and the trace says interrupted.
func TestKilledClient(t *testing.T) {
	d := startDaemon(t)
	for i, c := range d.callers(t) {
		mark := fmt.Sprintf("51.%d%d", os.Getpid(), i)
		client := c.hang(t, mark)
		_ = client.Process.Kill()
		_ = client.Wait()
		eventually(t, "the command is gone", func() bool { return !anyProcess("\x00" + mark) })
		eventually(t, "its end is on the trace", func() bool { return bytes.Count(d.records(t), []byte(`"error_type":"interrupted"`)) == i+1 })
		if out, problems, status := c.pinfold("run", "echo next"); out != "next\n" || status != 0 {
			t.Errorf("the next command: status %d\n%s%s", status, out, problems)
		}
	}
}

// TestKilledDaemon: the command ends with it, the client says so, and the next
// daemon closes the run on the trace.
func TestKilledDaemon(t *testing.T) {
	d := startDaemon(t)
	for i, c := range d.callers(t) {
		mark := fmt.Sprintf("52.%d%d", os.Getpid(), i)
		client := c.hang(t, mark)
		d.stop(t, unix.SIGKILL)
		eventually(t, "the command is gone", func() bool { return !anyProcess("\x00" + mark) })
		if err := client.Wait(); err == nil || client.ProcessState.ExitCode() != exitFailed {
			t.Errorf("the client: %v", err)
		}
		d.start(t)
		if n := bytes.Count(d.records(t), []byte(`"error_type":"interrupted"`)); n != i+1 {
			t.Errorf("%d runs are interrupted on the trace", n)
		}
		if out, problems, status := c.pinfold("run", "echo next"); out != "next\n" || status != 0 {
			t.Errorf("the next command: status %d\n%s%s", status, out, problems)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(d.root)) {
		t.Errorf("mounts are left (%v):\n%s", err, mounts)
	}
}

// TestStoppedDaemon: SIGTERM ends runs in order and leaves no socket.
func TestStoppedDaemon(t *testing.T) {
	d := startDaemon(t)
	c := d.callers(t)[0]
	mark := fmt.Sprintf("53.%d", os.Getpid())
	client := c.hang(t, mark)
	d.stop(t, unix.SIGTERM)
	if anyProcess("\x00" + mark) {
		t.Error("the command outlives the daemon")
	}
	if err := client.Wait(); err == nil {
		t.Error("the client knows nothing of it")
	}
	data := d.records(t)
	if !bytes.Contains(data, []byte(`"error_type":"interrupted"`)) || !bytes.Contains(data, []byte(`"event":"stop"`)) {
		t.Errorf("trace:\n%s", data)
	}
	left, err := os.ReadDir(filepath.Dir(d.socket))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// resources counts what the daemon holds: descriptors, processes below it, mounts
// that these see, and cgroups of its own.
func (d *testDaemon) resources(t *testing.T) map[string]int {
	t.Helper()
	pid := d.process.Process.Pid
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{"descriptors": len(fds)}
	parents := map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range files {
		data, _ := os.ReadFile(name) // it may be gone
		var child, parent int
		var state string
		_, _ = fmt.Sscanf(string(data), "%d", &child)
		if _, rest, ok := strings.Cut(string(data), ") "); ok {
			_, _ = fmt.Sscanf(rest, "%s %d", &state, &parent)
		}
		parents[child] = parent
	}
	for child := range parents {
		for up := parents[child]; up > 1; up = parents[up] {
			if up == pid {
				count["processes"]++
				mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", child))
				count["mounts"] += bytes.Count(mounts, []byte("\n"))
				break
			}
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(path, "pinfold") {
			count["cgroups"]++
		}
		return nil
	})
	return count
}

// TestNothingGrows: 8 clients, 200 commands; every answer belongs to its
// question, and the daemon holds no more than before.
func TestNothingGrows(t *testing.T) {
	d := startDaemon(t)
	project := d.callers(t)[0].project
	client := api.NewClient(d.socket)
	defer client.Close()
	round := func(name string, each int) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range each {
					want := fmt.Sprintf("%s-%d-%d", name, i, j)
					got, err := client.Exec(context.Background(), api.ExecRequest{Project: project, Command: fmt.Sprintf("echo %s; exit %d", want, j)})
					if err != nil || got.Stdout != want+"\n" || got.ExitCode == nil || *got.ExitCode != j {
						t.Errorf("%s: got %+v, %v", want, got, err)
					}
				}
			})
		}
		wg.Wait()
	}
	round("warm", 5)
	var before map[string]int
	eventually(t, "the warm daemon is at rest", func() bool {
		last := before
		before = d.resources(t)
		time.Sleep(50 * time.Millisecond)
		return maps.Equal(last, before)
	})
	round("run", 25)
	var after map[string]int
	eventually(t, "what was there before", func() bool {
		after = d.resources(t)
		for what, n := range after {
			if n > before[what] {
				t.Logf("%d %s, before %d", n, what, before[what])
				return false
			}
		}
		return true
	})
}

// TestSiteRoots: what the site names is seen, and written where it may be, by
// every caller, until the policy changes.
func TestSiteRoots(t *testing.T) {
	var root string
	home, _ := os.UserHomeDir()
	for _, parent := range []string{"/srv", home} {
		if root != "" || parent == "" {
			break
		}
		if dir, err := os.MkdirTemp(parent, "pinfold-e2e-"); err == nil {
			root = dir
			t.Cleanup(func() { os.RemoveAll(dir) })
		}
	}
	if root == "" {
		t.Skip("no place for a directory that is neither temporary nor in a project")
	}
	for name, mode := range map[string]os.FileMode{".": 0o755, "docs": 0o755, "cache": 0o777} {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "docs/note"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t)
	callers := d.callers(t)
	d.restart(t, fmt.Sprintf("readable = [%q]\nwritable = [%q]\n", root+"/docs", root+"/cache"))
	show, write := "cat "+root+"/docs/note", "echo kept > "+root+"/cache/"
	for _, c := range callers {
		if out, problems, status := c.pinfold("run", show); out != "hello\n" {
			t.Errorf("%s: %s: status %d\n%s%s", c.name, show, status, out, problems)
		}
		if out, problems, status := c.pinfold("run", write+c.name); status != 0 {
			t.Errorf("%s: %s: status %d\n%s%s", c.name, write, status, out, problems)
		}
		if data, err := os.ReadFile(filepath.Join(root, "cache", c.name)); string(data) != "kept\n" {
			t.Errorf("%s: written: %q, %v", c.name, data, err)
		}
		if _, _, status := c.pinfold("run", "echo x > "+root+"/docs/note"); status != exitRefused {
			t.Errorf("%s: a readable directory is written: status %d", c.name, status)
		}
		if _, _, status := c.pinfold("run", "python3 -c 'open(\""+root+"/docs/new\", \"w\")'"); status == 0 {
			t.Errorf("%s: python3 writes a readable directory", c.name)
		}
	}
	if err := os.WriteFile(filepath.Join(d.root, "policy.toml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_ = d.process.Process.Signal(unix.SIGHUP)
	for _, c := range callers {
		eventually(t, "the directories are gone", func() bool { _, _, status := c.pinfold("run", show); return status == exitRefused })
		if out, _, status := c.pinfold("run", "python3 -c 'print(open(\""+root+"/docs/note\").read())'"); status == 0 {
			t.Errorf("%s: python3 still sees %q", c.name, out)
		}
	}
}

// TestStream: a large output arrives whole, also through a slow pipe.
func TestStream(t *testing.T) {
	d := startDaemon(t)
	c := d.callers(t)[0]
	out, problems, status := c.pinfold("run", "seq 1000000")
	if status != 0 || len(out) != 6888896 || !strings.HasSuffix(out, "\n1000000\n") {
		t.Errorf("status %d, %d bytes\n%s", status, len(out), problems)
	}
	// A reader that goes away ends the run.
	head := c.command("bash", "-c", `"$0" run 'while :; do echo 1; done' | head -1`, filepath.Join(bin, "pinfold"))
	begin := time.Now()
	if out, err := head.Output(); err != nil || string(out) != "1\n" || time.Since(begin) > 30*time.Second {
		t.Errorf("got %q, %v after %v", out, err, time.Since(begin))
	}
}

// TestClientStaysSmall: nothing that makes the client slow to start has come in.
func TestClientStaysSmall(t *testing.T) {
	if _, err := os.Stat("main.go"); err != nil {
		t.Skip("the source is needed")
	}
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	const own = "github.com/pinfold/pinfold/"
	for _, name := range strings.Fields(string(out)) {
		switch name {
		case "net/http", "crypto/tls", own + "confine", own + "policy", own + "shparse":
			t.Errorf("%s is in the client", name)
		}
	}
}
