package confine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// An attackRow is one line of an attack table: setup and check run outside, the
// attack inside. What prints ESCAPE and the id has got through.
type attackRow struct {
	ID        string `json:"id"`
	Lang      string `json:"lang"`
	Attack    string `json:"attack"`
	HostSetup string `json:"host_setup"`
	HostCheck string `json:"host_check"`
	// Marker says in words what success is; a time in it is held to.
	Marker string `json:"success_marker"`
	// Expect is "blocked"; "contained" for what has to end in bounds; or
	// "policy_choice" for what a grant for any program allows on purpose: such
	// a row runs pinned to the programs that it names.
	Expect string `json:"expect"`
	// TimeoutS is for a row that would go on until it is ended.
	TimeoutS int `json:"timeout_s"`
}

// knownOpen are attacks that nothing stops yet, with the reason. They are run
// and counted, but are no failure of the tree's own table.
var knownOpen = map[string]string{}

// attackMeanwhile is what the daemon is asked to do while the attack runs.
var attackMeanwhile = map[string]func(t *testing.T, b box){
	// the attack exchanges sub with a link that leads out
	"K037": func(t *testing.T, b box) {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if out := b.attempt(pinned(t, "cat"), "cat sub/secret"); strings.Contains(out, "OUTSIDE_SECRET") {
				fmt.Println("ESCAPE K037 read through the link")
				t.Error("read through the link")
			}
			b.attempt(policy.Grant{Write: []string{"sub"}}, "echo x > sub/f")
			b.attempt(policy.Grant{Write: []string{"sub/f"}}, "echo x > sub/f")
		}
	},
}

// attackAfter is what the daemon is asked to do when the attack is over.
var attackAfter = map[string]func(t *testing.T, b box){
	// the attack plants a link where a command is to write
	"K036": func(t *testing.T, b box) {
		b.attempt(policy.Grant{Write: []string{"result.log"}}, "echo x > result.log")
		b.attempt(widest, "echo x > result.log")
	},
}

// attackChecks are for rows whose own check is only a comment.
var attackChecks = map[string]string{
	"K036": `[ "$(cat /var/tmp/kcorpus/victim)" = old ] || echo ESCAPE K036`,
	"K037": `test -e /var/tmp/kcorpus/f && echo ESCAPE K037`,
}

// attempt runs a command that may be refused and returns what it wrote.
func (b box) attempt(g policy.Grant, text string) string {
	r, out, errs := b.request(g, text)
	r.Timeout = 10 * time.Second
	b.m.Run(context.Background(), r)
	return out.String() + errs.String()
}

// outside runs a piece of shell text on the host as the caller, in the project.
// What it leaves in the background is ended by the function that is returned.
func (b box) outside(t *testing.T, text string) (string, func()) {
	t.Helper()
	if text == "" {
		return "", func() {}
	}
	out, err := os.CreateTemp("", "pinfold-outside-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command("/bin/bash", "-c", text)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.project, out, out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.caller.Home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: b.caller.UID, Gid: b.caller.GID, Groups: b.caller.Groups}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	got, _ := os.ReadFile(out.Name())
	return string(got), func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// inside prepares the attack's program and returns the command that runs it.
func (row attackRow) inside(t *testing.T, b box) (text, skip string) {
	t.Helper()
	switch row.Lang {
	case "bash":
		return row.Attack, ""
	case "python3":
		if _, err := exec.LookPath("python3"); err != nil {
			return "", "python3 is not installed"
		}
		writeFile(t, b.caller, b.project+"/attack.py", row.Attack, 0o644)
		return "/usr/bin/python3 attack.py", ""
	case "c":
		if _, err := exec.LookPath("gcc"); err != nil {
			return "", "gcc is not installed"
		}
		if runtime.GOARCH != "amd64" {
			return "", "is written for amd64"
		}
		writeFile(t, b.caller, b.project+"/attack.c", row.Attack, 0o644)
		if out := b.attempt(widest, "gcc -w -o attack attack.c"); out != "" {
			return "", "does not compile: " + out
		}
		return "./attack", ""
	}
	return "", "no such language: " + row.Lang
}

// grant is the widest that there is, or pinned for what that allows on purpose.
func (row attackRow) grant(b box) policy.Grant {
	if !strings.Contains(row.Expect, "policy_choice") {
		return widest
	}
	g := policy.Grant{Write: []string{"."}, Exec: []string{}}
	words := map[string][]string{"python3": {"python3"}, "bash": bareWord.FindAllString(row.Attack, -1)}[row.Lang]
	for _, w := range words {
		if path, err := filepath.EvalSymlinks("/usr/bin/" + w); err == nil && !slices.Contains(g.Exec, path) {
			g.Exec = append(g.Exec, path)
		}
	}
	if row.Lang == "c" {
		g.Exec = []string{filepath.Join(b.project, "attack")}
	}
	return g
}

var (
	bareWord = regexp.MustCompile(`\b[a-z][a-z0-9-]+\b`)
	atMost   = regexp.MustCompile(`more than (\d+) s\b`)
	// what a program says that lacks something it needs, so that it proves nothing
	lacking = regexp.MustCompile(`command not found|No module named|SyntaxError|AttributeError: function|undefined symbol`)
)

// An excerpt keeps the beginning and the end of a stream and counts the rest.
type excerpt struct {
	head, tail []byte
	total      int64
}

const excerptSize = 1 << 20

func (e *excerpt) Write(b []byte) (int, error) {
	n := len(b)
	e.total += int64(n)
	k := min(n, excerptSize-len(e.head))
	e.head, b = append(e.head, b[:k]...), b[k:]
	if e.tail = append(e.tail, b...); len(e.tail) > 2*excerptSize {
		e.tail = append([]byte(nil), e.tail[len(e.tail)-excerptSize:]...)
	}
	return n, nil
}

func (e *excerpt) String() string { return string(e.head) + string(e.tail) }

// peak is the most memory that this process had since the last call, in MiB.
func peak() (mib int) {
	status, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		fmt.Sscan(rest, &mib)
	}
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // starts anew (proc(5))
	return mib >> 10
}

// try runs one row and returns what escaped.
func (row attackRow) try(t *testing.T, b box) (escapes []string, skip string) {
	t.Helper()
	_, done := b.outside(t, row.HostSetup)
	defer done()
	text, skip := row.inside(t, b)
	if skip != "" {
		return nil, skip
	}
	r, _, _ := b.request(row.grant(b), text)
	var out, errs excerpt
	r.Stdout, r.Stderr = &out, &errs
	if strings.HasPrefix(row.Expect, "contained") {
		r.Timeout = time.Minute
	}
	if row.ID == "K103" { // it waits for its end
		row.TimeoutS = 1
	}
	if row.TimeoutS > 0 {
		r.Timeout = time.Duration(row.TimeoutS) * time.Second
	}
	longest := r.Timeout + 25*time.Second
	if m := atMost.FindStringSubmatch(row.Marker); m != nil {
		n, _ := strconv.Atoi(m[1])
		longest = time.Duration(n) * time.Second
	}
	meanwhile := make(chan struct{})
	go func() {
		defer close(meanwhile)
		if f := attackMeanwhile[row.ID]; f != nil {
			f(t, b)
		}
	}()
	peak()
	before := peak()
	begin := time.Now()
	o, err := b.m.Run(context.Background(), r)
	took := time.Since(begin)
	<-meanwhile
	escape := func(format string, args ...any) {
		escapes = append(escapes, fmt.Sprintf("ESCAPE "+row.ID+" "+format, args...))
	}
	switch after := peak(); {
	case err != nil:
		escape("was not run: %v", err)
	case took > longest:
		escape("took %v", took)
	case after > before+200:
		escape("took %d MiB of the daemon's", after-before)
	case out.total+errs.total > DefaultOutputLimit+4<<20:
		escape("wrote %d bytes", out.total+errs.total)
	}
	if f := attackAfter[row.ID]; f != nil {
		f(t, b)
	}
	if next := b.attempt(policy.Grant{}, "echo next"); next != "next\n" {
		escape("left a session that does not work: %q", next)
	}
	check := row.HostCheck
	if own := attackChecks[row.ID]; own != "" {
		check = own
	}
	seen, done := b.outside(t, check)
	done()
	said := out.String()
	for line := range strings.Lines(said + "\n" + errs.String() + "\n" + seen) {
		// some say themselves that they cannot tell
		if strings.HasPrefix(line, "ESCAPE") && !strings.Contains(line, "host check decides") {
			escapes = append(escapes, strings.TrimSpace(line))
		}
	}
	if len(escapes) == 0 && o.ExitCode != 0 && !strings.Contains(said, "BLOCKED") && lacking.MatchString(errs.String()) {
		return nil, fmt.Sprintf("this machine lacks what it needs: %s", strings.TrimSpace(errs.String()))
	}
	return escapes, ""
}

// A tally counts what came of a table.
type tally struct{ run, escaped, skipped, open int }

func (n tally) String() string {
	return fmt.Sprintf("attacks: %d run, %d escaped, %d skipped", n.run, n.escaped, n.skipped)
}

// attackTally is of every table that was run, for the last line of the output.
var attackTally tally

func TestMain(m *testing.M) {
	code := m.Run()
	if attackTally != (tally{}) {
		fmt.Println(attackTally)
	}
	os.Exit(code)
}

// attackTable opens the table that PINFOLD_ATTACKS names, or one of the tree's.
func attackTable(t *testing.T, own string) (rows []attackRow, named string) {
	t.Helper()
	name := os.Getenv("PINFOLD_ATTACKS")
	named = name
	if name == "" {
		_, source, _, _ := runtime.Caller(0)
		if name = own; !filepath.IsAbs(name) {
			if _, err := os.Stat(name); err != nil {
				name = filepath.Join(filepath.Dir(source), name)
			}
		}
	}
	f, err := os.Open(name)
	if err != nil && named == "" {
		t.Skipf("the table is not here, PINFOLD_ATTACKS can name one: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		var row attackRow
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return rows, named
}

// runTable runs each row in a project of its own.
func runTable(t *testing.T, rows []attackRow, c Caller, named bool) tally {
	t.Helper()
	m := newManager(t)
	how := "as root's daemon: "
	if !m.system {
		how = "unprivileged: "
	}
	clean := func() {
		os.RemoveAll("/var/tmp/kcorpus")
		os.RemoveAll(filepath.Join(c.Home, "kcorpus_side"))
	}
	t.Cleanup(clean)
	inheritable(t)
	var n tally
	for i, row := range rows {
		if testing.Short() && !named && (i%2 == 0) != m.system {
			continue // root's daemon and the unprivileged one take every other row
		}
		t.Run(row.ID, func(t *testing.T) {
			clean()
			b := box{m, c, newProject(t, c, c.Home)}
			escapes, skip := row.try(t, b)
			switch {
			case skip != "":
				n.skipped++
				fmt.Printf("%sskipped: %s: %s\n", how, row.ID, skip)
			case len(escapes) == 0:
				n.run++
				fmt.Printf("%sblocked: %s\n", how, row.ID)
			case knownOpen[row.ID] != "" && !named:
				n.run++
				n.open++
				fmt.Printf("%sopen: %s: %s (%d)\n", how, row.ID, knownOpen[row.ID], len(escapes))
			default:
				n.run++
				n.escaped++
				fmt.Printf("%sescaped: %s: %s\n", how, row.ID, strings.Join(escapes, "; "))
				t.Error(strings.Join(escapes, "\n"))
			}
		})
	}
	if n.open > 0 {
		fmt.Printf("%sopen: %d\n", how, n.open)
	}
	return n
}

// TestAttacks runs a table of attacks, the one of testdata or the one that
// PINFOLD_ATTACKS names, each with the widest grant that there is. A table that
// is named runs twice where this is root: as root's daemon, and unprivileged.
func TestAttacks(t *testing.T) {
	rows, named := attackTable(t, "../testdata/attacks/kernel.jsonl")
	c, ok := callers(t)["user"]
	if !ok {
		c = callers(t)["self"]
	}
	attackTally.add(runTable(t, rows, c, named != ""))
	if named != "" && os.Geteuid() == 0 {
		t.Run("unprivileged", func(t *testing.T) { attackTally.add(unprivileged(t, named)) })
	}
}

// TestRedTeam runs the tree's second table, for root as well.
func TestRedTeam(t *testing.T) {
	if testing.Short() && os.Geteuid() != 0 {
		t.Skip("takes a minute; root's daemon runs it for an ordinary user")
	}
	if os.Getenv("PINFOLD_ATTACKS") != "" {
		t.Skip("another table is named")
	}
	rows, _ := attackTable(t, "../testdata/attacks/redteam.jsonl")
	for name, c := range callers(t) {
		if testing.Short() && c.UID == 0 {
			continue // an ordinary user stands for root
		}
		t.Run(name, func(t *testing.T) { attackTally.add(runTable(t, rows, c, false)) })
	}
}

func (n *tally) add(o tally) {
	n.run, n.escaped, n.skipped, n.open = n.run+o.run, n.escaped+o.escaped, n.skipped+o.skipped, n.open+o.open
}

// unprivileged runs this test's own program as an ordinary user, for the table.
func unprivileged(t *testing.T, table string) tally {
	t.Helper()
	c := callerNamed(t, testUser)
	dir := newProject(t, c, c.Home)
	for from, to := range map[string]string{"/proc/self/exe": "test", table: "table"} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, c, filepath.Join(dir, to), string(content), 0o755)
	}
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.run=^TestAttacks$", "-test.timeout=30m")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Home, "USER=" + c.Name, "LANG=C.UTF-8", "PINFOLD_ATTACKS=" + filepath.Join(dir, "table")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.Groups}}
	out, err := cmd.CombinedOutput()
	var n tally
	last := false
	for line := range strings.Lines(string(out)) {
		if _, scanErr := fmt.Sscanf(line, "attacks: %d run, %d escaped, %d skipped", &n.run, &n.escaped, &n.skipped); scanErr == nil {
			last = true
			continue
		}
		fmt.Print(line)
	}
	if !last || err != nil || n.escaped > 0 {
		t.Errorf("unprivileged: %v", err)
	}
	return n
}

// inheritable opens descriptors that this process, as the daemon, would hand on
// to whatever it executes.
func inheritable(t *testing.T) {
	t.Helper()
	for _, at := range []int{100, 1025, 2048} {
		fd, err := unix.Open("/var/tmp", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if unix.Dup2(fd, at) != nil { // more than this process may have
			at = fd
		} else {
			unix.Close(fd)
		}
		t.Cleanup(func() { unix.Close(at) })
	}
}
