
// TestManual: the page has an entry for each key, and no other lines that
// man(7) would take for requests.
func TestManual(t *testing.T) {
	page := manual()
	for _, s := range settings {
		if n := strings.Count(page, "\n.TP\n.B "+roff(s.key)+"\n"); n != 1 {
			t.Errorf("%s: %d entries", s.key, n)
		}
	}
	known := map[string]bool{".TH": true, ".SH": true, ".SS": true, ".nf": true, ".fi": true, ".PP": true, ".TP": true, ".B": true, ".BR": true, ".I": true, ".IR": true, ".br": true}
	for line := range strings.Lines(page) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !known[word] {
			t.Errorf("%q", line)
		}
	}
}
