package confine

import (
	"errors"
	"os"
	"testing"
)

// TestDoTakesTheCallersRights: inside, root opens what the caller may open and
// nothing else, also nested; outside, it is root again.
func TestDoTakesTheCallersRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("is about root")
	}
	c := callerNamed(t, testUser)
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		if _, err := os.ReadFile(secret); !errors.Is(err, os.ErrPermission) {
			t.Errorf("as the caller: %v", err)
		}
	}
	err := c.Do(func() error {
		refused()
		err := c.Do(func() error { refused(); return nil })
		refused()
		// a link of /proc, which root may follow by another right
		if _, err := os.Readlink("/proc/1/cwd"); !errors.Is(err, os.ErrPermission) {
			t.Errorf("another's process as the caller: %v", err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 { // on whichever thread
		if _, err := os.ReadFile(secret); err != nil {
			t.Fatalf("as root again: %v", err)
		}
	}
}
