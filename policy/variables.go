package policy

import (
	"fmt"
	"strings"
)

// A variableFact says what assigning an environment variable does.
type variableFact struct {
	Names  []string `toml:"names"` // exact, or ending in "*"
	Role   string   `toml:"role"`  // "ask": steers other programs; "program": names one; "path": places that are read; "target": that are written; "plain"
	Reason string   `toml:"reason"`
}

// variableFacts finds the fact about a variable. Exact names go before
// patterns, longer patterns before shorter ones.
type variableFacts struct {
	exact    map[string]*variableFact
	patterns map[string]*variableFact // without the "*"
}

func indexVariables(list []variableFact) (variableFacts, error) {
	v := variableFacts{exact: map[string]*variableFact{}, patterns: map[string]*variableFact{}}
	for i := range list {
		f := &list[i]
		switch f.Role {
		case "ask", "program", "path", "target", "plain":
		default:
			return v, fmt.Errorf("variable %v: unknown role %q: want ask, program, path, target or plain", f.Names, f.Role)
		}
		if f.Role == "ask" && f.Reason == "" {
			return v, fmt.Errorf("variable %v: no reason", f.Names)
		}
		for _, name := range f.Names {
			into := v.exact
			if strings.HasSuffix(name, "*") {
				into, name = v.patterns, strings.TrimSuffix(name, "*")
			}
			if into[name] != nil {
				return v, fmt.Errorf("variable %s: described twice", name)
			}
			into[name] = f
		}
	}
	return v, nil
}

// program reports whether the variable names a program.
func (v *variableFacts) program(name string) bool {
	f := v.find(name)
	return f != nil && f.Role == "program"
}

// find returns the fact about the variable, or nil when it steers nothing.
func (v *variableFacts) find(name string) *variableFact {
	if f := v.exact[name]; f != nil {
		return f
	}
	for n := len(name); n > 0; n-- {
		if f := v.patterns[name[:n]]; f != nil {
			return f
		}
	}
	return nil
}
