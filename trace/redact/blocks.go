package redact

import "bytes"

// judgeKey judges "-----BEGIN …PRIVATE KEY…-----": a key follows when enough of
// its text does. What is dropped goes on to the end marker, or to the first byte
// that cannot be of a key.
func judgeKey(t *text, at int) finding {
	b := t.b
	p := at + len("-----BEGIN")
	for p < len(b) && p-at < 64 && (b[p] == ' ' || b[p] == '+' || 'A' <= b[p] && b[p] <= 'Z' || '0' <= b[p] && b[p] <= '9') {
		p++
	}
	if p == len(b) {
		return t.more(at)
	}
	if label := b[at:p]; !bytes.Contains(label, []byte("PRIVATE")) || !bytes.Contains(label, []byte("KEY")) {
		return finding{}
	}
	if len(b)-p < 5 && bytes.Equal(b[p:], []byte("-----")[:len(b)-p]) {
		return t.more(at)
	}
	if !bytes.HasPrefix(b[p:], []byte("-----")) {
		return finding{}
	}
	p += 5
	end, body := p, 0
	for end < len(b) && keyBytes[b[end]] {
		if alnum[b[end]] {
			body++
		}
		if bytes.HasSuffix(b[p:end+1], []byte("-----END")) {
			return finding{found, at, end + 1, "private_key", true}
		}
		end++
		if body >= 40 {
			return finding{found, at, end, "private_key", true}
		}
	}
	if end == len(b) {
		if t.last && body >= 16 {
			return finding{found, at, end, "private_key", true}
		}
		return t.more(at)
	}
	if body < 16 {
		return finding{}
	}
	return finding{found, at, end, "private_key", false}
}

// keyBytes are of a key block: base64, headers, escapes and what begins lines in
// diffs, quotations and lists.
var keyBytes = setOf("A-Za-z0-9+/=\r\n\t \\:,\"'>|-")

// judgeURL judges "://": user:password@host.
func judgeURL(t *text, at int) finding {
	b := t.b
	if at == 0 || !alnum[b[at-1]] {
		return finding{}
	}
	p := at + 3
	colon, last := -1, -1
	end := p
	for ; end < len(b) && end-p < 1024; end++ {
		switch c := b[end]; {
		case c == ':' && colon < 0:
			colon = end
			continue
		case c == '@':
			last = end
			continue
		case c > ' ' && c != '/' && c != '"' && c != '\'' && c != '<' && c != '>' && c != '`' && c != '?' && c != '#' && c != '\\' && c != ')' && c != '|' && c != ']' && c != 0x7f:
			continue
		}
		break
	}
	if end == len(b) && !t.last && end-p < 1024 {
		if colon < 0 {
			return t.more(end)
		}
		return t.more(colon + 1)
	}
	if colon < 0 || last <= colon+1 || placeholder(b[colon+1:last]) {
		return finding{}
	}
	return finding{found, colon + 1, last, "url_password", false}
}

// judgeJWT judges "eyJ": header, payload and signature.
func judgeJWT(t *text, at int) finding {
	b := t.b
	if !boundary(b, at) {
		return finding{}
	}
	end, dots, least := at, 0, 0
	from := at
	for ; end < len(b) && end-at < maxToken; end++ {
		if b[end] == '.' {
			dots++
			if end-from < 10 {
				least++
			}
			from = end + 1
			if dots > 4 {
				break
			}
			continue
		}
		if !dashed[b[end]] {
			break
		}
	}
	if end == len(b) && !t.last && end-at < maxToken {
		return t.more(at)
	}
	if dots < 1 || least > 0 && dots < 4 || end-at < 30 {
		return finding{}
	}
	return finding{found, at, end, "jwt", end-at == maxToken}
}

// judgeWebhook judges the part of a webhook's address that is its secret.
func judgeWebhook(prefix string) func(t *text, at int) finding {
	return func(t *text, at int) finding {
		b := t.b
		p := at + len(prefix)
		end := p
		for end < len(b) && (dashed[b[end]] || b[end] == '/') && end-p < 512 {
			end++
		}
		if end == len(b) && !t.last && end-p < 512 {
			return t.more(p)
		}
		if end-p < 20 || !hasRun(b[p:end], 8) {
			return finding{}
		}
		return finding{found, p, end, "webhook", false}
	}
}

// localKind is the kind of a home directory; its marker is another.
const localKind = "local_path"

// judgeHome judges what may be a home directory.
func judgeHome(prefix string) func(t *text, at int) finding {
	return func(t *text, at int) finding {
		b := t.b
		if at > 0 && (word[b[at-1]] && !boundary(b, at) || b[at-1] == '.' || b[at-1] == '/' && (at < 2 || b[at-2] != '/')) {
			return finding{}
		}
		p := at + len(prefix)
		end := p
		for end < len(b) && dotted[b[end]] && end-p < 64 {
			end++
		}
		if end == len(b) && !t.last {
			return t.more(at)
		}
		if end == p {
			return finding{}
		}
		return finding{found, at, end, localKind, false}
	}
}
