package suite

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// tables are the attacks of package confine, by its own tests: the red team's and
// the kernel's of testdata/attacks, and those of attack_test.go.
const tables = "TestRedTeam|TestAttacks|TestAttacksFromPython|TestProgramAttacks|TestExecPinning|TestCallsUnderPinnedGrant|TestForeignABI|" +
	"TestPinned.*|TestProtectedNames|TestHiddenNames|TestNothingOutlivesTheCommand|TestForkBomb|TestMemoryIsBounded|TestReceipt|TestSeccompGolden"

var resultLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// TestAttackTables runs them as root's daemon, for an ordinary user, and without
// privilege, each in a delegated cgroup.
func TestAttackTables(t *testing.T) {
	if kernelABI() == 0 {
		t.Skip("this kernel has no Landlock: nothing runs")
	}
	for _, as := range []struct{ name, uid, only string }{
		{"root's daemon, for a user", "root", "/user"},
		{"a user's daemon", "pinfold-test", ""},
	} {
		row(t, "attack tables", as.name, func(t *testing.T) string {
			home := who(t, as.uid).home
			c := exec.Command("systemd-run", "--wait", "--pipe", "-q", "--uid", as.uid, "-p", "Delegate=yes", "-p", "LimitNOFILE=65536",
				"-p", "WorkingDirectory="+job+"/source/confine", "--setenv", "HOME="+home, "--setenv", "USER="+as.uid, "--setenv", "LANG=C.UTF-8",
				job+"/source/confine/test", "-test.short", "-test.v", "-test.timeout", "15m", "-test.run", "^("+tables+")$"+as.only)
			var out bytes.Buffer
			c.Stdout = io.MultiWriter(&out, os.Stdout) // the host sees how far it is
			c.Stderr = c.Stdout
			err := c.Run()
			count := map[string]int{}
			var failed []string
			for _, m := range resultLine.FindAllStringSubmatch(out.String(), -1) {
				count[m[1]]++
				if m[1] == "FAIL" {
					failed = append(failed, m[2])
				}
			}
			if err != nil || count["PASS"] == 0 || len(failed) > 0 {
				t.Errorf("%v: %q", err, failed)
			}
			return fmt.Sprintf("%d checks hold, %d do not apply", count["PASS"], count["SKIP"])
		})
	}
}
