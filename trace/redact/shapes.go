package redact

import "strings"

// A set of bytes.
type set [256]bool

func setOf(spec string) *set {
	var s set
	for i := 0; i < len(spec); i++ {
		if i+2 < len(spec) && spec[i+1] == '-' {
			for c := int(spec[i]); c <= int(spec[i+2]); c++ {
				s[c] = true
			}
			i += 2
			continue
		}
		s[spec[i]] = true
	}
	return &s
}

// allBut returns the set of all bytes but those.
func allBut(bytes string) *set {
	var s set
	for c := range s {
		s[c] = strings.IndexByte(bytes, byte(c)) < 0
	}
	return &s
}

var (
	alnum  = setOf("A-Za-z0-9")
	word   = setOf("A-Za-z0-9_")
	dashed = setOf("A-Za-z0-9_-")
	dotted = setOf("A-Za-z0-9_.-")
	upper  = setOf("A-Z0-9")
	lower  = setOf("a-z0-9")
	hexLow = setOf("a-f0-9")
	base64 = setOf("A-Za-z0-9+/_-")
	padded = setOf("A-Za-z0-9+/_=-")
	bearer = setOf("A-Za-z0-9._~+/=-")
)

// A shape is a token that is known by how it begins.
type shape struct {
	kind, prefix string
	set          *set // of what follows
	least, most  int  // bytes that follow; most 0 is any number
	// run is the least length of a stretch of letters and digits, with at least
	// one digit, that what follows must have: names in words have none.
	run int
}

// shapes are the tokens of providers, as their documentation gives them. Where
// lengths vary, the least that was seen is taken.
var shapes = []shape{
	{"openai", "sk-", dashed, 20, 0, 16},
	{"anthropic", "sk-ant-", dashed, 20, 0, 8},
	{"github", "ghp_", alnum, 30, 0, 20}, {"github", "gho_", alnum, 30, 0, 20}, {"github", "ghu_", alnum, 30, 0, 20},
	{"github", "ghs_", alnum, 30, 0, 20}, {"github", "ghr_", alnum, 30, 0, 20}, {"github", "github_pat_", word, 40, 0, 16},
	{"gitlab", "glpat-", dotted, 18, 0, 8}, {"gitlab", "gldt-", dashed, 18, 0, 8}, {"gitlab", "glrt-", dotted, 18, 0, 8},
	{"gitlab", "glcbt-", dashed, 18, 0, 8}, {"gitlab", "glptt-", dashed, 18, 0, 8}, {"gitlab", "glsoat-", dashed, 18, 0, 8},
	{"slack", "xoxb-", dashed, 20, 0, 10}, {"slack", "xoxp-", dashed, 20, 0, 10}, {"slack", "xoxa-", dashed, 20, 0, 10},
	{"slack", "xoxr-", dashed, 20, 0, 10}, {"slack", "xoxs-", dashed, 20, 0, 10}, {"slack", "xoxe.", dotted, 20, 0, 10},
	{"slack", "xapp-", dashed, 20, 0, 10},
	{"aws", "AKIA", upper, 16, 16, 16}, {"aws", "ASIA", upper, 16, 16, 16}, {"aws", "ABIA", upper, 16, 16, 16}, {"aws", "ACCA", upper, 16, 16, 16},
	{"google", "AIza", dashed, 35, 35, 6}, {"google", "ya29.", dashed, 20, 0, 8}, {"google", "GOCSPX-", dashed, 28, 0, 6},
	{"stripe", "sk_live_", alnum, 16, 0, 16}, {"stripe", "sk_test_", alnum, 16, 0, 16}, {"stripe", "rk_live_", alnum, 16, 0, 16},
	{"stripe", "rk_test_", alnum, 16, 0, 16}, {"stripe", "whsec_", padded, 24, 0, 12},
	{"sendgrid", "SG.", dotted, 60, 0, 10},
	{"npm", "npm_", alnum, 36, 36, 20},
	{"pypi", "pypi-", dashed, 50, 0, 16},
	{"digitalocean", "dop_v1_", hexLow, 64, 64, 32}, {"digitalocean", "doo_v1_", hexLow, 64, 64, 32}, {"digitalocean", "dor_v1_", hexLow, 64, 64, 32},
	{"huggingface", "hf_", alnum, 30, 0, 30}, {"huggingface", "api_org_", alnum, 30, 0, 30},
	{"shopify", "shpat_", hexLow, 32, 32, 32}, {"shopify", "shpca_", hexLow, 32, 32, 32}, {"shopify", "shppa_", hexLow, 32, 32, 32}, {"shopify", "shpss_", hexLow, 32, 32, 32},
	{"mailgun", "key-", hexLow, 32, 32, 32},
	{"square", "sq0atp-", dashed, 22, 0, 8}, {"square", "sq0csp-", dashed, 40, 0, 8}, {"square", "EAAA", dashed, 56, 0, 16},
	{"vault", "hvs.", dashed, 24, 0, 10}, {"vault", "hvb.", dashed, 24, 0, 10}, {"vault", "hvr.", dashed, 24, 0, 10},
	{"pulumi", "pul-", hexLow, 40, 40, 40},
	{"databricks", "dapi", hexLow, 32, 0, 32},
	{"doppler", "dp.pt.", alnum, 40, 0, 20}, {"doppler", "dp.st.", dotted, 40, 0, 20},
	{"linear", "lin_api_", alnum, 32, 0, 20}, {"figma", "figd_", dashed, 32, 0, 10},
	{"atlassian", "ATATT3", padded, 60, 0, 16}, {"atlassian", "ATCTT3", padded, 60, 0, 16},
	{"grafana", "glsa_", word, 32, 0, 16}, {"grafana", "glc_", padded, 32, 0, 16},
	{"newrelic", "NRAK-", upper, 27, 27, 20}, {"postman", "PMAK-", dashed, 50, 0, 20},
	{"rubygems", "rubygems_", hexLow, 48, 48, 32}, {"sentry", "sntrys_", padded, 40, 0, 16}, {"sentry", "sntryu_", hexLow, 64, 64, 32},
	{"age", "AGE-SECRET-KEY-1", upper, 58, 58, 40},
	{"brevo", "xkeysib-", dashed, 64, 0, 32}, {"dropbox", "sl.", dashed, 100, 0, 16},
	{"contentful", "CFPAT-", dashed, 40, 0, 16}, {"onepassword", "ops_", padded, 100, 0, 20},
	{"cargo", "cio", alnum, 32, 32, 32}, {"docker", "dckr_pat_", dashed, 24, 0, 8},
	{"replicate", "r8_", alnum, 37, 0, 20}, {"groq", "gsk_", alnum, 40, 0, 20}, {"xai", "xai-", alnum, 60, 0, 30},
	{"perplexity", "pplx-", alnum, 40, 0, 20}, {"nvidia", "nvapi-", dashed, 60, 0, 10},
	{"terraform", ".atlasv1.", dashed, 60, 0, 16},
	{"telegram", ":AA", dashed, 33, 33, 8},
	{"nuget", "oy2", lower, 43, 43, 40},
	{"netlify", "nfp_", alnum, 36, 0, 20}, {"flyio", "fo1_", dashed, 40, 0, 20}, {"supabase", "sbp_", hexLow, 40, 40, 40},
	{"clojars", "CLOJARS_", hexLow, 60, 60, 40}, {"planetscale", "pscale_tkn_", dotted, 32, 0, 10},
	{"airtable", "pat", dotted, 79, 79, 40},
}

// behind tells of the shapes whose anchor lies in the middle: what stands before
// it is no secret and must be there.
var behind = map[string]func(b []byte, at int) bool{
	":AA":       func(b []byte, at int) bool { return countBack(b, at, setOf("0-9"), 12) >= 8 },
	".atlasv1.": func(b []byte, at int) bool { return countBack(b, at, alnum, 20) >= 14 },
}

func countBack(b []byte, at int, s *set, most int) (n int) {
	for n < most && at-n > 0 && s[b[at-n-1]] {
		n++
	}
	return n
}

// anchor returns what finds the shape.
func (s shape) anchor() *anchor {
	before := behind[s.prefix]
	return &anchor{text: s.prefix, ahead: true, judge: func(t *text, at int) finding {
		if before == nil && !boundary(t.b, at) || before != nil && !before(t.b, at) {
			return finding{}
		}
		from := at + len(s.prefix)
		end := t.end(s.set, from, maxToken)
		if end == len(t.b) && !t.last && end-from < maxToken {
			return t.more(at)
		}
		n := end - from
		if n < s.least || s.most > 0 && n > s.most || !hasRun(t.b[from:end], s.run) {
			return finding{}
		}
		return finding{found, at, end, s.kind, n == maxToken}
	}}
}

// hasRun reports whether there is a stretch of at least n letters and digits
// that has a digit and, for hexadecimal or longer text, is no repetition.
func hasRun(b []byte, n int) bool {
	if n == 0 {
		return true
	}
	length, digits, different := 0, 0, 0
	var seen [2]uint64 // by letter or digit, all below 128
	for _, c := range b {
		if !alnum[c] {
			length, digits, different, seen = 0, 0, 0, [2]uint64{}
			continue
		}
		length++
		if bit := uint64(1) << (c & 63); seen[c>>6]&bit == 0 {
			seen[c>>6] |= bit
			different++
		}
		if c <= '9' {
			digits++
		}
		if length >= n && digits > 0 && different >= min(n, 6)-1 {
			return true
		}
	}
	return false
}

// boundary reports whether a word may begin at i: what stands before is not part
// of one, or is the end of an escape (\n in JSON, %3D in a URL, a colour).
func boundary(b []byte, i int) bool {
	if i == 0 || !word[b[i-1]] {
		return true
	}
	if i >= 2 && b[i-2] == '\\' {
		switch b[i-1] {
		case 'n', 'r', 't', 'b', 'f':
			return true
		}
	}
	if i >= 3 && b[i-3] == '%' && isHex(b[i-1]) && isHex(b[i-2]) {
		return true
	}
	if i >= 6 && b[i-6] == '\\' && b[i-5] == 'u' {
		return true
	}
	if b[i-1] == 'm' { // \e[1;31m
		k := i - 1
		for k > 0 && i-k < 16 && (b[k-1] == ';' || '0' <= b[k-1] && b[k-1] <= '9') {
			k--
		}
		return k >= 2 && b[k-1] == '[' && b[k-2] == 0x1b
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
