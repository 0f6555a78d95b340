package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/confine"
)

// Registries are those of the caller's own configuration, without what is secret
// in it, and never of a file that commands can write.
func TestRegistries(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(manager string) string {
		return strings.Join(newRegistries(confine.Caller{Home: home}, project, []string{"/srv/shared"}).Hosts(manager), " ")
	}
	before := of("npm")
	write(home+"/.npmrc", "registry=https://me:secret@npm.corp.example:8443/x/\n@scope:registry = \"http://scope.example\"\n//npm.corp.example/:_authToken=secret\nregistry=ftp://x\n")
	write(home+"/.config/pip/pip.conf", "[global]\nindex-url = https://pip.corp.example/simple\nextra-index-url: https://more.example:443/simple\n")
	write(home+"/.config/go/env", "GOPROXY="+"https://go.corp.example|direct,off\nGOSUMDB=sum.corp.example+1234+abc\n")
	write(home+"/.cargo/config.toml", "[source.crates-io]\nreplace-with = 'x'\n[source.x]\nregistry = \"sparse+https://crates.corp.example/index/\"\n")
	for manager, want := range map[string]string{
		"npm": "npm.corp.example:8443 scope.example", "pip": "pip.corp.example more.example", "go": "go.corp.example sum.corp.example",
		"cargo": "crates.corp.example", "git": "", "": "",
	} {
		if got := of(manager); got != want {
			t.Errorf("%s: %q, want %q", manager, got, want)
		}
	}
	env := newRegistries(confine.Caller{Home: home}, project, nil).environment()
	want := []string{"npm_config_registry=https://npm.corp.example:8443/x/", "PIP_INDEX_URL=https://pip.corp.example/simple", "GOPROXY=" + "https://go.corp.example"}
	if !slices.Equal(env, want) || strings.Contains(strings.Join(env, " "), "secret") {
		t.Errorf("%q, want %q", env, want)
	}
	// the same files in the project, or reached through a link to it
	if err := os.Rename(home+"/.npmrc", project+"/.npmrc"); err != nil {
		t.Fatal(err)
	}
	if got := of("npm"); got != before {
		t.Errorf("without the file: %q, want %q", got, before)
	}
	if err := os.Symlink(project+"/.npmrc", home+"/.npmrc"); err != nil {
		t.Fatal(err)
	}
	if got := of("npm"); got != before {
		t.Errorf("a link into the project: %q, want %q", got, before)
	}
	home = project
	if got := of("npm"); got != before {
		t.Errorf("a home that is the project: %q, want %q", got, before)
	}
}
