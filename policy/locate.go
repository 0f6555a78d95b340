package policy

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
)

var (
	placed     = regexp.MustCompile(`:\d+:\d+: `)
	namedRule  = regexp.MustCompile(`rule "?([^":]+)"?: `)
	quoted     = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	unknownKey = regexp.MustCompile(`unknown key "([^"]+)"$`)
)

// locate gives each line of the error the place that it is about, when it names
// a rule of one of the sources and has none, and says which keys are valid.
func locate(err error, sources ...Source) error {
	if err == nil {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		line = strings.TrimSuffix(line, " (<nil>)")
		if m := unknownKey.FindStringSubmatch(line); m != nil {
			line += ": want one of " + strings.Join(validKeys(m[1]), ", ")
		}
		lines = append(lines, locateLine(line, sources))
	}
	return errors.New(strings.Join(lines, "\n"))
}

func locateLine(line string, sources []Source) string {
	m := namedRule.FindStringSubmatchIndex(line)
	if m == nil || placed.MatchString(line) {
		return line
	}
	id, about := line[m[2]:m[3]], line[m[0]:]
	for _, s := range sources {
		if start := idOffset(s.Text, id); start >= 0 {
			offset := start
			if word := quoted.FindStringSubmatch(line[m[1]:]); word != nil {
				if i := strings.Index(s.Text[start:], word[1]); i >= 0 {
					offset += i
				}
			}
			return s.offsetAt(offset) + ": " + about
		}
	}
	return line
}

// idOffset returns where the rule's id is given, -1 when it is not. The last
// place counts: one that is defined twice is wrong there.
func idOffset(text, id string) int {
	found := regexp.MustCompile(`(?m)^\s*id\s*=\s*["']`+regexp.QuoteMeta(id)+`["']`).FindAllStringIndex(text, -1)
	if found == nil {
		return -1
	}
	last := found[len(found)-1]
	return last[0] + strings.Index(text[last[0]:last[1]], "id")
}

// validKeys returns the keys that could stand in the place of the unknown one.
func validKeys(key string) (keys []string) {
	typ := reflect.TypeFor[policyFile]()
	switch table, _, nested := strings.Cut(key, "."); {
	case !nested:
	case strings.HasPrefix(key, "rule.narrow.") || strings.HasPrefix(key, "rule.widen."):
		typ = reflect.TypeFor[bounds]()
	case table == "rule":
		typ = reflect.TypeFor[ruleFile]()
	case table == "project":
		typ = reflect.TypeFor[projectFile]()
	case table == "builtin":
		typ = reflect.TypeFor[builtinFile]()
	case table == "places":
		typ = reflect.TypeFor[placesFile]()
	}
	for _, f := range reflect.VisibleFields(typ) {
		if name := f.Tag.Get("toml"); name != "" && name != "places" {
			keys = append(keys, name)
		}
	}
	return keys
}
