package redact

import (
	std "encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

// A sample is a text with a secret in it. No secret stands in this file: each is
// made of a prefix and of random bytes, so that it is nobody's.
type sample struct {
	kind, text, secret string
}

const (
	lettersDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	hexDigits     = "0123456789abcdef"
	upperDigits   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

func random(r *rand.Rand, alphabet string, n int) string {
	for {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		// As real ones: digits are spread.
		if strings.ContainsAny(string(b[:n/2+1]), "0123456789") && strings.ContainsAny(string(b[n/2:]), "0123456789") {
			return string(b)
		}
	}
}

// samples returns at least four of each kind.
func samples() []sample {
	r := rand.New(rand.NewPCG(1, 2))
	var all []sample
	add := func(kind, before, prefix, alphabet string, n int, after string) {
		for range 4 {
			s := random(r, alphabet, n)
			all = append(all, sample{kind, before + prefix + s + after, s})
		}
	}
	for _, t := range []struct {
		kind, prefix, alphabet string
		n                      int
	}{
		{"openai", "sk-", lettersDigits, 48}, {"openai", "sk-proj-", lettersDigits, 64}, {"anthropic", "sk-ant-api03-", lettersDigits, 93},
		{"github", "ghp_", lettersDigits, 36}, {"github", "gho_", lettersDigits, 36}, {"github", "ghs_", lettersDigits, 36},
		{"github", "github_pat_", lettersDigits, 82}, {"gitlab", "glpat-", lettersDigits, 20}, {"gitlab", "glrt-", lettersDigits, 20},
		{"slack", "xoxb-123456789012-", lettersDigits, 24}, {"slack", "xapp-1-", lettersDigits, 40}, {"aws", "AKIA", upperDigits, 16}, {"aws", "ASIA", upperDigits, 16},
		{"google", "AIza", lettersDigits, 35}, {"google", "ya29.", lettersDigits, 60}, {"google", "GOCSPX-", lettersDigits, 28},
		{"stripe", "sk_live_", lettersDigits, 24}, {"stripe", "rk_live_", lettersDigits, 24}, {"stripe", "whsec_", lettersDigits, 32},
		{"sendgrid", "SG." + "abcdefghij0123456789ab.", lettersDigits, 43}, {"npm", "npm_", lettersDigits, 36}, {"pypi", "pypi-", lettersDigits, 90},
		{"digitalocean", "dop_v1_", hexDigits, 64}, {"huggingface", "hf_", lettersDigits, 34}, {"shopify", "shpat_", hexDigits, 32},
		{"twilio", "SK", hexDigits, 32}, {"mailgun", "key-", hexDigits, 32}, {"square", "sq0atp-", lettersDigits, 22}, {"vault", "hvs.", lettersDigits, 40},
		{"pulumi", "pul-", hexDigits, 40}, {"databricks", "dapi", hexDigits, 32}, {"doppler", "dp.pt.", lettersDigits, 43}, {"linear", "lin_api_", lettersDigits, 40},
		{"figma", "figd_", lettersDigits, 40}, {"atlassian", "ATATT3", lettersDigits, 100}, {"grafana", "glsa_", lettersDigits, 41}, {"newrelic", "NRAK-", upperDigits, 27},
		{"postman", "PMAK-", hexDigits, 59}, {"rubygems", "rubygems_", hexDigits, 48}, {"sentry", "sntryu_", hexDigits, 64}, {"age", "AGE-SECRET-KEY-1", upperDigits, 58},
		{"brevo", "xkeysib-", hexDigits, 64}, {"dropbox", "sl.", lettersDigits, 130}, {"contentful", "CFPAT-", lettersDigits, 43}, {"cargo", "cio", lettersDigits, 32},
		{"docker", "dckr_pat_", lettersDigits, 27}, {"replicate", "r8_", lettersDigits, 37}, {"groq", "gsk_", lettersDigits, 52}, {"xai", "xai-", lettersDigits, 80},
		{"perplexity", "pplx-", lettersDigits, 48}, {"nvidia", "nvapi-", lettersDigits, 64}, {"terraform", "abcdefghij0123.atlasv1.", lettersDigits, 67},
		{"telegram", "1234567890:AA", lettersDigits, 33}, {"nuget", "oy2", strings.ToLower(upperDigits), 43}, {"netlify", "nfp_", lettersDigits, 36},
		{"supabase", "sbp_", hexDigits, 40},
	} {
		add(t.kind, "", t.prefix, t.alphabet, t.n, "")
	}
	add("bearer", "curl -H 'Authorization: ", "Bearer ", lettersDigits, 40, "'")
	add("bearer", "", "bearer ", lettersDigits, 32, "")
	add("authorization", "authorization: ", "token ", hexDigits, 40, "")
	add("value", "", "DATABASE_PASSWORD=", lettersDigits, 14, "")
	add("value", "export ", "AWS_SECRET_ACCESS_KEY=", lettersDigits, 40, "")
	add("value", `{"user": "a", `, `"password": "`, lettersDigits, 16, `"}`)
	add("value", "", "client_secret: ", lettersDigits, 24, "\nnext: line")
	add("value", "deploy --token ", "", hexDigits, 40, " --now")
	add("value", "", "db.password = '", lettersDigits, 12, "'")
	add("url_password", "", "postgres://app:", lettersDigits, 12, "@db.internal:5432/app")
	add("url_password", "git clone ", "https://x:", lettersDigits, 20, "@git.internal/r.git")
	add("webhook", "https://", "hooks.slack.com/services/T0000/B0000/", lettersDigits, 24, "")
	for range 4 {
		pair := random(r, lettersDigits, 18)
		b := std.StdEncoding.EncodeToString([]byte("user:" + pair))
		all = append(all, sample{"basic", "Basic " + b, b[8:]})
		head := std.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))
		body, sign := std.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+random(r, lettersDigits, 12)+`"}`)), random(r, lettersDigits, 43)
		all = append(all, sample{"jwt", head + "." + body + "." + sign, sign})
		lines := random(r, lettersDigits, 64) + "\n" + random(r, lettersDigits, 64) + "\n" + random(r, lettersDigits, 30) + "="
		for _, label := range []string{"RSA ", "", "OPENSSH "} {
			all = append(all, sample{"private_key", "-----BEGIN " + label + "PRIVATE" + " KEY-----\n" + lines + "\n-----END " + label + "PRIVATE" + " KEY-----", lines})
		}
	}
	return all
}

// leaks returns a piece of the secret that is in the text: eight bytes of it.
func leaks(out, secret string) string {
	for i := 0; i+8 <= len(secret); i++ {
		if piece := secret[i : i+8]; !strings.Contains(piece, "\n") && strings.Contains(out, piece) {
			return piece
		}
	}
	return ""
}

// TestSecretsAreRedacted is the table: every secret, whole and in the ways in
// which it travels.
func TestSecretsAreRedacted(t *testing.T) {
	r := New(Options{})
	kinds := map[string]bool{}
	list := samples()
	for _, s := range list {
		kinds[s.kind] = true
		inJSON, _ := json.Marshal(map[string]string{"output": "a line\n" + s.text + "\nb"})
		encoded := std.StdEncoding.EncodeToString([]byte(s.text))
		for _, c := range []struct{ way, text, secret string }{
			{"whole", s.text, s.secret},
			{"in text", "before " + s.text + " after\n", s.secret},
			{"in JSON", string(inJSON), s.secret},
			{"in a diff", "@@ -1,2 +1,2 @@\n-" + strings.ReplaceAll(s.text, "\n", "\n-") + "\n+" + strings.ReplaceAll(s.text, "\n", "\n+") + "\n", s.secret},
			{"in colour", "\x1b[1;31m" + s.text + "\x1b[0m", s.secret},
			{"in base64", "data: " + encoded + "\n", encoded[len(encoded)/2:]},
			{"in URL-safe base64", std.RawURLEncoding.EncodeToString([]byte(s.text)), std.RawURLEncoding.EncodeToString([]byte(s.text))[len(encoded)/2:]},
			{"in a URL", "https://host.test/cb?a=b&x=" + url.QueryEscape(s.text) + "&y=1", strings.TrimSuffix(strings.ReplaceAll(s.secret, "\n", "%0A"), "=")},
		} {
			out, counts := r.String(c.text)
			if piece := leaks(out, c.secret); piece != "" {
				t.Errorf("%s %s: %q is left of %q: %q", s.kind, c.way, piece, c.text, out)
			} else if len(counts) == 0 {
				t.Errorf("%s %s: not counted in %q", s.kind, c.way, c.text)
			}
		}
	}
	if len(list) < 150 || len(kinds) < 40 {
		t.Errorf("%d secrets of %d kinds: want 150 of 40", len(list), len(kinds))
	}
}

// pieces writes the text in pieces of n bytes, the first of the given length.
func pieces(r *Redactor, text string, first, n int) (string, Counts) {
	var b strings.Builder
	w := r.Writer(&b)
	for size := first; len(text) > 0; size = n {
		size = min(max(size, 1), len(text))
		_, _ = w.Write([]byte(text[:size]))
		text = text[size:]
	}
	_ = w.Close()
	return b.String(), w.Counts()
}

// TestCutsDoNotMatter checks that what comes out is the same however the text
// was cut: in two at every byte, and byte by byte.
func TestCutsDoNotMatter(t *testing.T) {
	r := New(Options{LocalPaths: true})
	list := samples()
	for i, s := range list {
		text := "/home/somebody/x: " + s.text + "\nand " + std.StdEncoding.EncodeToString([]byte("A_TOKEN="+s.secret)) + " end"
		want, counts := r.String(text)
		for cut := 1; cut < len(text); cut++ {
			if got, n := pieces(r, text, cut, len(text)); got != want || fmt.Sprint(n) != fmt.Sprint(counts) {
				t.Fatalf("sample %d, %s, cut at %d of %q:\n got %q\nwant %q", i, s.kind, cut, text, got, want)
			}
		}
		for _, n := range []int{1, 3, 7} {
			if got, _ := pieces(r, text, n, n); got != want {
				t.Fatalf("sample %d, %s, by %d of %q:\n got %q\nwant %q", i, s.kind, n, text, got, want)
			}
		}
	}
}

// TestNearMisses checks what only looks like a secret.
func TestNearMisses(t *testing.T) {
	r := New(Options{})
	list := nearMisses()
	for _, s := range list {
		if out, counts := r.String(s); out != s || counts != nil {
			t.Errorf("%q became %q", s, out)
		}
	}
	if len(list) < 300 {
		t.Errorf("%d near misses: want 300", len(list))
	}
}

func nearMisses() []string {
	list := strings.Split(strings.TrimSpace(plainMisses), "\n")
	r := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		list = append(list,
			"commit "+random(r, hexDigits, 40),
			random(r, hexDigits, 64)+"  bin/pinfold",
			"sha256:"+random(r, hexDigits, 64),
			"sha512-"+std.StdEncoding.EncodeToString([]byte(random(r, lettersDigits, 48)))[:60]+"\x00\x01",
			random(r, hexDigits, 8)+"-"+random(r, hexDigits, 4)+"-4"+random(r, hexDigits, 3)+"-a"+random(r, hexDigits, 3)+"-"+random(r, hexDigits, 12),
			"\"integrity\": \"sha512-"+random(r, lettersDigits, 86)+"==\"",
			"index "+random(r, hexDigits, 7)+".."+random(r, hexDigits, 7)+" 100644",
		)
	}
	return list
}

const plainMisses = `
sk-learn is not a token
pip install scikit-learn sk-learn-contrib-package-names
<div class="sk-fading-circle-element-container">
the task-management-application-for-everyone
ghp_short
ghp_ followed by words
github_pat_ is the prefix of fine-grained tokens
glpat- is the prefix of GitLab
xoxb- and xoxp- are prefixes
AKIA is how access keys begin
AKIAIOSFODNN7 is too short
AIza is how Google keys begin
npm_config_registry=https://registry.example.org/
npm_package_version
npm_lifecycle_event
hf_hub_download(repo_id=repo)
dapi is a prefix
keyboard
key-value
key-value-store-with-a-long-name-indeed
monkey: 12345678
turkey=delicious1
password
Password:
password: string
password = input("Password: ")
password=password
password: ""
password: null
"password": null,
"password": "string"
"password": { "type": "string", "minLength": 8 }
password = os.environ["DB_PASSWORD"]
password = os.getenv("DB_PASSWORD1")
PASSWORD=$DB_PASSWORD
PASSWORD=${DB_PASSWORD:-}
PASSWORD=$(cat /run/secrets/db)
PASSWORD="$1"
PASSWORD=<your password>
PASSWORD=xxxxxxxx
PASSWORD=********
PASSWORD=your_password_here
PASSWORD_FILE=/run/secrets/password1
PASSWORD_HASH_ALGORITHM=argon2id
PASSWORD_MIN_LENGTH=12
export SECRET_NAME=database-1
SECRET_KEY_REF=ref/key2
TOKEN_URL=https://auth.host.test/oauth2/token
TOKEN_TYPE=bearer2024
token_type: "bearer"
max_tokens: 4096
max_tokens=100000
num_tokens = 1024
tokens: 123456789
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased-v2")
token := lexer.Next()
token = self.tokens[self.pos2]
token: Token
token == other1234
const token = await getToken1();
if token != expected1 {
func parseToken(token2 string) error {
return ErrTokenExpired
case token.IDENT:
go/token.go:128: unused variable
secret = None
secret: Option<String>
secretName: database-credentials
secretKeyRef:
secrets: inherit
"secret": true,
kubectl get secrets -n kube-system
credential helper store
credentials: include
credentials = get_credentials2()
git config credential.helper store
api_key = settings.API_KEY
api_key=None
API_KEY=
apiKey: process.env.API_KEY2,
apiKey={apiKey1}
"apiKey": "<API_KEY>"
PRIVATE_KEY=./keys/server.key
PRIVATE_KEY_PATH=/etc/ssl/key1.pem
SSH_AUTH_SOCK=/run/user/1000/agent.sock
public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"
primary_key=True
foreign_key: user_id2
sort_key = lambda x: x[1]
hash_key = 12345678
Bearer token
bearer tokens are accepted
Bearer authentication
Bearer <token>
Bearer $TOKEN
Bearer ${TOKEN}
a bearer of bad news
Basic authentication
Basic usage:
BASIC programming language
basic-auth
Basic dXNlcg==
WWW-Authenticate: Basic realm="x"
Authorization: Bearer
Authorization: Bearer <token>
Authorization: required
authorization: string
https://host.test/path
https://host.test:8080/path@version
https://user@host.test/
git@github.com:owner/repo.git
ssh://git@host.test:22/repo.git
http://localhost:3000/@fs/home
https://registry.example.org/@types/node/-/node-20.1.0.tgz
postgres://app:$PASSWORD@db/app
postgres://app:<password>@db/app
postgres://app@db/app
redis://localhost:6379/0
file:///usr/share/doc
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
if strings.Contains(s, "-----BEGIN PRIVATE KEY-----") {
grep -r -- '-----BEGIN RSA PRIVATE KEY-----' .
eyJ is how JWTs begin
eyJhbGciOiJIUzI1NiJ9
keyJoin.and.others
x.eyJ.y
12:34:56 AA
at 1234567890:AAbb
drwxr-xr-x 2 root root 4096 Dec  1 00:21 passwords
-rw------- 1 root root 12 Dec  1 00:21 secret.txt
pass: 1234
1234 passed, 2 failed
PASS
ok  	github.com/owner/repo/trace	1.234s
--- PASS: TestTokenExpires (0.00s)
PASS: 120 tests
bypass=true1234
compass: north123
test_password_reset_sends_mail1 PASSED
tests/test_auth.py::test_token_refresh2 PASSED
src/auth/token2.go:12:3: undefined: token3
/usr/lib/python3/dist-packages/secretstorage/__init__.py
/usr/lib/x86_64-linux-gnu/libsecret-1.so.0.0.0
node_modules/js-tokens/index2.js
import { Token2 } from './token2'
from secrets import token_urlsafe
secrets.token_hex(16)
passwd: password updated successfully
/etc/passwd
root:x:0:0:root:/root:/bin/bash
pwd
PWD=/srv/project1/src
OLDPWD=/srv/project2
pwd: /srv/a1
--password-file /run/p1
--token-ttl 15m30s
--token TOKEN
--password string
--secret-name name-1
-p, --password=PASSWORD  the password
  --api-key KEY   the key to use
50% done
100%25
printf "%20s|%3d"
date +%Y%m%d%H%M%S
%2F is a slash
a%20b%20c
https://host.test/?q=a%3Db%26c%3Dd
https://host.test/search?q=how%20to%20reset%20a%20password
SGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXN0Lg==
VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZw==
usr/share/doc/python3/examples/tutorial
`
