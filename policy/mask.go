package policy

import (
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// masks are what stands in output in the place of secrets and of home
// directories. They are no text that anybody means to write.
var masks = []string{"[REDACTED", "[LOCAL_PATH]"}

// writesMask is the rule of a command that writes in the project and has a mask
// in its text: it would put the mask where the secret was.
var writesMask = &rule{ruleFile: ruleFile{ID: "writes-mask", Verdict: RequireApproval, Risk: High,
	Reason:  "what stands for a secret in output would be written into the project, in the secret's place",
	Suggest: "leave the lines with secrets as they are, and edit the others"}}

// mask asks about a script that writes in the project and names a mask.
func (j *judge) mask(s *shparse.Script) {
	if len(j.writes)+len(j.opened) == 0 {
		return
	}
	for _, m := range masks {
		if i := strings.Index(s.Source, m); i >= 0 {
			j.found(writesMask, "", where{i, i + len(m)})
			return
		}
		if strings.Contains(s.Text, m) {
			j.found(writesMask, "", where{0, len(s.Source)})
			return
		}
	}
}
