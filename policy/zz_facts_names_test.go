package policy

func (p *Policy) AllNames() (out []string) {
	for n := range p.facts {
		out = append(out, n)
	}
	return
}
