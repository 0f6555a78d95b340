package policy

import (
	"slices"
	"strings"
	"testing"
)

// Patterns match as those of gitignore do.
func TestPaths(t *testing.T) {
	for _, row := range []struct {
		patterns       string
		match, covered string // covered: not by itself
		not            string
	}{
		{".envrc", ".envrc sub/.envrc a/b/.envrc", ".envrc/x a/.envrc/b/c", "envrc .envrcx x.envrc . .env"},
		{"/.envrc", ".envrc", ".envrc/x", "sub/.envrc sub/.envrc/x"},
		{".github/workflows", ".github/workflows a/.github/workflows", ".github/workflows/x/y", ".github workflows .github/workflow .github/x/workflows .github/workflowsx"},
		{"/ci/*.key", "ci/a.key ci/.key", "ci/a.key/x", "ci/a/b.key a/ci/a.key a.key"},
		{".env .env.* !.env.example !.env.*.example", ".env .env.local a/.env.x", ".env/x", ".env.example a/.env.example .env.a.example .envrc"},
		{".env.* !.env.example .env.e*", ".env.example .env.a", "", ".env"},
		{"*.p[12]2 id_?sa", "a.p12 x/.p22 id_rsa", "id_rsa/x", "a.p32 id_sa id_rrsa a.p12x"},
		{"*.a.*", "x.a.y .a.", "x.a.b/c", "x.a .a"},
		{"", "", "", ". a a/b"},
	} {
		l, err := parsePaths(strings.Fields(row.patterns))
		if err != nil {
			t.Errorf("%s: %v", row.patterns, err)
		}
		if got := l.Patterns(); !slices.Equal(got, strings.Fields(row.patterns)) {
			t.Errorf("%s: patterns %q", row.patterns, got)
		}
		for _, rel := range strings.Fields(row.match) {
			if !l.Match(rel) || !l.Covers(rel) {
				t.Errorf("%s does not match %s", row.patterns, rel)
			}
		}
		for _, rel := range strings.Fields(row.covered) {
			if l.Match(rel) || !l.Covers(rel) {
				t.Errorf("%s does not cover %s, or matches it", row.patterns, rel)
			}
		}
		for _, rel := range strings.Fields(row.not) {
			if l.Match(rel) || l.Covers(rel) {
				t.Errorf("%s matches %s", row.patterns, rel)
			}
		}
	}
	for _, wrong := range []string{"", "/", "!", "a/", "a//b", "a/../b", "..", ".", "./a", "a\\b", "[", "a/**", "!/"} {
		if _, err := parsePaths([]string{wrong}); err == nil {
			t.Errorf("the pattern %q is taken", wrong)
		}
	}
}

// What steers programs of the host and what holds keys is listed; what people
// write every day is not.
func TestProtectedAndHidden(t *testing.T) {
	p, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, rel := range strings.Fields(`.gitmodules .envrc .vscode/tasks.json .idea/x .devcontainer/devcontainer.json .mcp.json .claude/settings.json
		.codex/config.toml .cursor/mcp.json .gemini/settings.json .pinfold.toml .github/workflows/ci.yml .github/hooks/x sub/.envrc a/b/.vscode/x`) {
		if !p.Protected().Covers(rel) {
			t.Errorf("%s is not protected", rel)
		}
	}
	for _, rel := range strings.Fields(`AGENTS.md CLAUDE.md README.md Makefile .gitignore .gitattributes .github/ISSUE.md .editorconfig package.json src/vscode .env`) {
		if p.Protected().Covers(rel) {
			t.Errorf("%s is protected", rel)
		}
	}
	for _, rel := range strings.Fields(`.env .env.local sub/.env.production .npmrc .pypirc .netrc id_rsa deploy/id_ed25519 server.key .aws/credentials .kube/config .ssh/id_rsa
		.docker/config.json tls/server-key.pem`) {
		if !p.Hidden().Covers(rel) {
			t.Errorf("%s is not hidden", rel)
		}
	}
	for _, rel := range strings.Fields(`.env.example .env.sample .env.template sub/.env.example .env.local.example id_rsa.pub cert.pem cacert.pem .envrc key.go keys.json
		.cargo/config.toml env docker/config.json`) {
		if p.Hidden().Covers(rel) {
			t.Errorf("%s is hidden", rel)
		}
	}
	for _, rel := range strings.Fields(`config config.worktree hooks hooks/pre-commit info/attributes info/exclude info/grafts commondir gitdir objects/info/alternates
		modules/a/config modules/a/modules/b/hooks/x worktrees/w/commondir worktrees/w/gitdir worktrees/w/config.worktree`) {
		if !p.Git().Covers(rel) {
			t.Errorf(".git/%s is not what steers git", rel)
		}
	}
}

// A site adds to the lists and takes out of them; a project only adds.
func TestLayersOfPaths(t *testing.T) {
	p, err := Load(Source{"site.toml", "protected = ['/deploy', '!.husky']\nhidden = ['*.secret', '!.npmrc']"})
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Tighten(Source{".pinfold.toml", "protected = ['Makefile']\nhidden = ['/data']"})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		list Paths
		rel  string
		want bool
	}{
		{p.Protected(), "deploy/x", true}, {p.Protected(), ".husky/x", false}, {p.Protected(), ".envrc", true}, {p.Protected(), "Makefile", false},
		{p.Hidden(), "a.secret", true}, {p.Hidden(), ".npmrc", false}, {p.Hidden(), ".env", true}, {p.Hidden(), "data/x", false},
		{q.Protected(), "deploy/x", true}, {q.Protected(), "Makefile", true}, {q.Hidden(), "data/x", true}, {q.Hidden(), "a.secret", true},
	} {
		if got := row.list.Covers(row.rel); got != row.want {
			t.Errorf("%s: covered %v, want %v", row.rel, got, row.want)
		}
	}
	for text, want := range map[string]string{
		"protected = ['Makefile', '!.envrc']": ".pinfold.toml:1:27: a project's policy can only tighten",
		"x = 1":                               "unknown key",
		"\nhidden = ['ok', 'a//b']":           `.pinfold.toml:2:18: hidden: "a//b": want names`,
	} {
		if _, err := p.Tighten(Source{".pinfold.toml", text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if _, err := Load(Source{"site.toml", "protected = ['']"}); err == nil || !strings.Contains(err.Error(), "site.toml") {
		t.Errorf("an empty pattern: error %v", err)
	}
}
