package confine

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
)

func testCaller(t *testing.T) Caller {
	t.Helper()
	home := t.TempDir()
	return Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Name: "tester", Home: home}
}

func TestTrue(t *testing.T) {
	m, err := New(Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	project, _ := filepath.EvalSymlinks(t.TempDir())
	var out, errs bytes.Buffer
	for _, g := range []policy.Grant{{}, {ExecAny: true, Write: []string{"."}}, {Exec: []string{"/usr/bin/ls"}}} {
		out.Reset()
		errs.Reset()
		o, err := m.Run(context.Background(), Request{Caller: testCaller(t), Project: project, Dir: ".", Text: "ls -la /; pwd; id; cat /proc/self/status | head -3; exit 3", Grant: g,
			Timeout: 5 * time.Second, Stdout: &out, Stderr: &errs})
		t.Logf("%+v %v\n%s%s", o, err, out.String(), errs.String())
	}
}
