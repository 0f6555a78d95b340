package redact

import (
	"bytes"
	"math"
	"strings"
)

// nameAnchors are in every secret-like name.
var nameAnchors = []string{"pass", "pwd", "secret", "token", "credential", "_key", "-key", "ikey", "skey", "ekey", "tkey", "gkey", "_auth", "nkey", "rkey"}

// secretWords make a name, its words run together, secret-like wherever they
// stand in it; secretEnds only at its end.
var (
	secretWords = []string{"password", "passwd", "passphrase", "secret", "credential", "apikey", "accesskey", "privatekey", "accountkey",
		"signingkey", "encryptionkey", "masterkey", "sharedkey", "sharedaccesskey", "authkey", "licensekey", "tokenkey", "servicekey", "deploykey"}
	secretEnds = []string{"token", "pwd", "_pass", "-pass", "_auth"}
	// harmlessEnds make it the name of something about a secret.
	harmlessEnds = []string{"file", "path", "url", "uri", "name", "id", "type", "length", "len", "count", "expiry", "expires", "ttl", "field",
		"label", "hint", "policy", "prompt", "regex", "pattern", "size", "limit", "version", "algorithm", "method", "dir", "env", "var", "s3",
		"format", "enabled", "required", "kind", "index", "scope", "error", "strength", "manager", "endpoint", "provider", "ref", "hash", "class"}
)

// secretName reports whether what carries the name is a secret.
func secretName(name []byte) bool {
	n := strings.ToLower(strings.Trim(string(name), "-_."))
	if n == "pass" {
		return true
	}
	flat := strings.NewReplacer("_", "", "-", "", ".", "").Replace(n)
	for _, end := range harmlessEnds {
		if strings.HasSuffix(flat, end) {
			return false
		}
	}
	for _, w := range secretWords {
		if strings.Contains(flat, w) {
			return true
		}
	}
	for _, end := range secretEnds {
		if strings.HasSuffix(n, end) {
			return true
		}
	}
	return false
}

// maxName is the longest name that is read, on either side of its anchor.
const maxName = 64

// judgeName judges the value behind a name: NAME=value, "name": "value",
// --name value.
func judgeName(t *text, at int) finding {
	b := t.b
	end := at
	for end < len(b) && dotted[b[end]] && end-at < maxName {
		end++
	}
	if end == len(b) {
		return t.more(end)
	}
	if end-at == maxName || strings.IndexByte("=: \t\\\"'`]+", b[end]) < 0 {
		return finding{}
	}
	start := at
	for start > 0 && dotted[b[start-1]] && at-start < maxName {
		start--
	}
	if start > 0 && b[start-1] == '\\' && start < at { // the n of \n
		start++
	}
	for k := start; k < at; k++ {
		if b[k] == 'm' && boundary(b, k+1) {
			start = k + 1 // the end of a colour
		}
	}
	if !secretName(b[start:end]) {
		return finding{}
	}
	return judgeAssigned(t, start, end)
}

// judgeAssigned judges what follows the secret-like name in [start, end).
func judgeAssigned(t *text, start, end int) finding {
	b := t.b
	at := skip(b, end, "\\\"'`]", 3)
	spaced := skip(b, at, " \t+", 4)
	if spaced == len(b) {
		return t.more(spaced)
	}
	v := value{name: b[start:end], spaced: spaced > at}
	switch c := b[spaced]; {
	case c == '=' || c == ':':
		v.sign = c
		at = spaced + 1
		if at == len(b) {
			return t.more(at)
		}
		if b[at] == '>' || c == ':' && b[at] == '=' {
			at++
		} else if b[at] == '=' || b[at] == ':' {
			return finding{}
		}
		from := skip(b, at, " \t", 4)
		v.spaced = v.spaced || from > at
		at = from
	case spaced > end && at == end && bytes.HasPrefix(b[start:], []byte("--")):
		at = spaced // an option and its value
	default:
		return finding{}
	}
	v.at = at
	if at = skip(b, at, "\\", 1); at < len(b) && (b[at] == '"' || b[at] == '\'' || b[at] == '`') {
		v.quote = b[at]
		v.at = at + 1
	}
	if at == len(b) {
		return t.more(v.at)
	}
	return v.judge(t)
}

// skip returns the place after at most n of the bytes from at on.
func skip(b []byte, at int, bytes string, n int) int {
	for n > 0 && at < len(b) && strings.IndexByte(bytes, b[at]) >= 0 {
		at++
		n--
	}
	return at
}

// A value is what a secret-like name is given.
type value struct {
	name   []byte
	sign   byte // '=' or ':', 0 for an option's
	spaced bool // there are blanks around the sign
	quote  byte // or 0
	at     int
}

// maxToken is the longest word that is read to its end; a longer one is judged
// by so much of it and dropped whole.
const maxToken = 2 << 10

// What a value may have, by how it is quoted.
var (
	unquoted     = allBut(" \t\r\n\"'`,;&)<>}]|\\\x00")
	doubleQuoted = allBut("\"\n\\")
	singleQuoted = allBut("'\n\\")
	backQuoted   = allBut("`\n\\")
)

func (v value) judge(t *text) finding {
	b := t.b
	end := t.end(v.stretch(), v.at, maxToken)
	if end == len(b) && !t.last && end-v.at < maxToken {
		return t.more(v.at)
	}
	what := b[v.at:end]
	if !v.isSecret(what, b[end:]) {
		return finding{}
	}
	return finding{found, v.at, end, "value", end-v.at == maxToken}
}

// stretch returns the bytes that a value may have.
func (v value) stretch() *set {
	switch v.quote {
	case '"':
		return doubleQuoted
	case '\'':
		return singleQuoted
	case '`':
		return backQuoted
	default:
		return unquoted
	}
}

// isSecret reports whether the value looks like one. In the way of an
// environment (NAME=value) nearly everything does; elsewhere, as in source, it
// has to look random.
func (v value) isSecret(what, rest []byte) bool {
	if len(what) < 4 || placeholder(what) {
		return false
	}
	if v.sign == '=' && !v.spaced && environmentName(v.name) && bytes.IndexByte(what, '(') < 0 {
		return !(what[0] == '/' || what[0] == '.' || what[0] == '~') || looksRandom(what)
	}
	if v.quote == 0 && len(rest) > 0 && (rest[0] == '(' || rest[0] == '[') || bytes.ContainsAny(what, "([{ ") {
		return false
	}
	if v.quote == 0 && identifier(what) && (bytes.IndexByte(what, '.') > 0 || v.spaced && v.sign == '=' && len(what) < 20) {
		return false // source: a variable
	}
	if what[0] == '/' && len(what) < 24 {
		return false
	}
	return looksRandom(what)
}

func environmentName(name []byte) bool {
	for _, c := range name {
		if !upper[c] && c != '_' {
			return false
		}
	}
	return true
}

// identifier reports whether the text could be a variable or a member of one.
func identifier(b []byte) bool {
	if '0' <= b[0] && b[0] <= '9' {
		return false
	}
	for _, c := range b {
		if !word[c] && c != '.' {
			return false
		}
	}
	return true
}

// maxPlaceholder is the longest word that may stand for a value by what is in it.
const maxPlaceholder = 128

// placeholder reports whether the value stands for one.
func placeholder(b []byte) bool {
	switch b[0] {
	case '$', '<', '{', '(', '[', '*', '%', '&', '#', '=', '!':
		return true
	}
	if len(b) > maxPlaceholder {
		return false
	}
	switch s := strings.ToLower(string(b)); {
	case strings.Trim(s, "x") == "", strings.Trim(s, "*.-_") == "", strings.Contains(s, "example"), strings.Contains(s, "your"), strings.Contains(s, "placeholder"):
		return true
	default:
		switch s {
		case "true", "false", "none", "null", "undefined", "required", "optional", "string", "password", "secret", "token", "bearer", "basic", "enabled", "disabled":
			return true
		}
	}
	return false
}

// looksRandom reports whether the text has letters and digits, seven or more
// bytes, and as much variety as passwords and keys have.
func looksRandom(b []byte) bool {
	if len(b) < 7 {
		return false
	}
	letters, digits, others, turns := 0, 0, 0, 0
	var count [256]int
	kind := 0
	for _, c := range b {
		count[c]++
		k := 3
		switch {
		case '0' <= c && c <= '9':
			digits++
			k = 2
		case 'a' <= c|0x20 && c|0x20 <= 'z':
			letters++
			k = 1
		default:
			others++
		}
		if k != kind {
			turns++
			kind = k
		}
	}
	if letters == 0 || digits == 0 {
		return false
	}
	if others > 0 && len(b) >= 10 && (bytes.Count(b, []byte("/")) > 1 && turns < 8) {
		return false // a path
	}
	entropy := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(b))
			entropy -= p * math.Log2(p)
		}
	}
	return entropy >= 2.3
}

// schemes come before the credential in an Authorization header.
var schemes = [][]byte{[]byte("bearer"), []byte("basic"), []byte("token"), []byte("digest"), []byte("apikey"), []byte("negotiate")}

// judgeAuthorization judges what follows the name of the header.
func judgeAuthorization(t *text, at int) finding {
	b := t.b
	p := skip(b, at+len("authorization"), "\\\"'", 2)
	p = skip(b, p, " ", 2)
	if p == len(b) {
		return t.more(p)
	}
	if b[p] != ':' && b[p] != '=' {
		return finding{}
	}
	p = skip(b, p+1, " \\\"'", 4)
	end := t.end(bearer, p, maxToken)
	if end == len(b) && !t.last && end-p < maxToken {
		return t.more(p)
	}
	first := b[p:end]
	for _, s := range schemes {
		if bytes.EqualFold(first, s) {
			q := skip(b, end, " ", 4)
			if q == len(b) && !t.last {
				return t.more(q)
			}
			end = t.end(bearer, q, maxToken)
			if end == len(b) && !t.last && end-q < maxToken {
				return t.more(q)
			}
			if end-q < 6 || placeholder(b[q:end]) {
				return finding{}
			}
			return finding{found, q, end, "authorization", end-q == maxToken}
		}
	}
	if len(first) < 8 || placeholder(first) || !looksRandom(first) {
		return finding{}
	}
	return finding{found, p, end, "authorization", end-p == maxToken}
}

// judgeScheme judges what follows Bearer or Basic outside a header's name.
func judgeScheme(kind string) func(t *text, at int) finding {
	return func(t *text, at int) finding {
		b := t.b
		if !boundary(b, at) {
			return finding{}
		}
		sign := at + len(kind)
		p := skip(b, sign, " +\t", 3)
		if p == len(b) {
			return t.more(p)
		}
		if p == sign {
			return finding{}
		}
		end := t.end(bearer, p, maxToken)
		if end == len(b) && !t.last && end-p < maxToken {
			return t.more(p)
		}
		what := b[p:end]
		switch {
		case kind == "basic" && !basicPair(what):
			return finding{}
		case kind == "bearer" && (len(what) < 12 || !looksRandom(what) || !hasRun(what, 8)):
			return finding{}
		}
		return finding{found, p, end, kind, end-p == maxToken}
	}
}

// basicPair reports whether the text is base64 of a user and a password.
func basicPair(b []byte) bool {
	plain := decode64(b, len(b))
	colon := bytes.IndexByte(plain, ':')
	return colon > 0 && colon < len(plain)-1 && printable(plain)
}
