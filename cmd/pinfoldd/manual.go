package main

import (
	"fmt"
	"strings"
)

// manual returns the manual page pinfold.toml(5), in the language of man(7): the
// settings are its table.
func manual() string {
	var b strings.Builder
	b.WriteString(`.TH PINFOLD.TOML 5 "" "Pinfold ` + roff(version) + `" "File formats"
.SH NAME
pinfold.toml \- configuration of pinfoldd, the daemon of Pinfold
.SH SYNOPSIS
.nf
` + systemConfig + `
` + systemConfig + `.d/*.toml
$XDG_CONFIG_HOME/pinfold/pinfold.toml, and pinfold.toml.d/*.toml there, with \-\-user
.fi
.SH DESCRIPTION
The file says where the daemon works and what bounds it. What commands may do is
said by the policy, in policy.toml beside it.
.PP
It is TOML. Files in the directory
.I pinfold.toml.d
whose names end in .toml are read after it, in the order of their names: what is
read last holds, key by key. Flags of
.BR pinfoldd (8)
stand above the files. No key is read from the environment; only places follow
$XDG_CONFIG_HOME, $XDG_STATE_HOME and $XDG_RUNTIME_DIR, with \-\-user.
.PP
The files, and each directory above them, must belong to root or to the user whose
daemon it is, and be writable by nobody else. A key that is not listed here, or a
value that it cannot have, is an error that names file, line and column, and the
daemon does not start.
.B pinfoldd \-\-check\-config
says what is wrong.
.PP
A new value holds from the next start of the daemon on; where a key says
.IR "taken by a reload" ,
also from
.B systemctl reload pinfold
on, for commands that start afterwards. While one of the files or the policy is bad,
a reload fails and everything stays as it was.
.PP
A key
.I a.b
is
.I b
in the table
.IR [a] .
.SH KEYS
`)
	table := ""
	for i := range settings {
		s := &settings[i]
		if name, _, nested := strings.Cut(s.key, "."); nested && name != table {
			table = name
			fmt.Fprintf(&b, ".SS [%s]\n", roff(table))
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(s.key), roff(s.doc))
		fmt.Fprintf(&b, ".br\nIt is %s", roff(s.kind()))
		if s.most > 0 {
			fmt.Fprintf(&b, " from %d to %d", s.least, s.most)
		}
		fmt.Fprintf(&b, ". Default: %s.", roff(s.usual))
		if s.flag != "" {
			fmt.Fprintf(&b, " Flag: \\fB\\-\\-%s\\fR.", roff(s.flag))
		}
		if s.reloads {
			b.WriteString(" Taken by a reload.")
		}
		b.WriteString("\n")
	}
	b.WriteString(`.SH EXAMPLE
.nf
callers  = "agents"
projects = ["/srv/projects"]

[trace]
sync = "always"

[limits]
memory_mib = 2048

[require]
cgroup = true
.fi
.SH SEE ALSO
.BR pinfoldd (8),
.BR pinfold (1)
`)
	return b.String()
}

// roff escapes a text for man(7).
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(text)
}
