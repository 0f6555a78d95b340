package trace

// EventPolicy is the event of a policy that was loaded, or could not be.
const EventPolicy = "policy"

// A PolicyLoad is the record of a policy that was loaded.
type PolicyLoad struct {
	Event   string `json:"event"`             // set by PolicyLoaded
	File    string `json:"file"`              // where the site's policy lies, whether there is one or not
	Policy  string `json:"policy"`            // hash of the policy that is in force now
	Problem string `json:"problem,omitempty"` // why the file was not taken, at most 512 bytes: the policy is the one before
}

// PolicyLoaded records that a policy was loaded, or that one was wrong.
func (l *Log) PolicyLoaded(p PolicyLoad) error {
	p.Event = EventPolicy
	p.File, p.Problem = clean(p.File), clip(clean(p.Problem), maxDetail)
	return l.appendNew(p)
}
