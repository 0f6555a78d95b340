package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
)

// doctorTime is how long the daemon may take to probe every layer.
const doctorTime = 30 * time.Second

// doctor is pinfold doctor.
func doctor(args []string) int {
	var socket string
	flags := newFlags("doctor", "", &socket)
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	if flags.NArg() > 0 {
		complain("doctor takes no operands, see pinfold doctor --help")
		return exitUsage
	}
	client, err := connect(socket)
	var st *api.Status
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
		defer cancel()
		st, err = client.Status(ctx)
	}
	if err != nil {
		complain("%v", err)
		return exitMissing
	}
	fprint(os.Stdout, diagnose(st))
	if !st.Ready {
		return exitMissing
	}
	return exitOK
}

// settings says of each setting which promise it makes.
var settings = map[string]string{
	"system": "the daemon of this machine: bounds the commands, and the agent's own process cannot get around it",
	"user":   "your own daemon: bounds the commands, but not the agent's own process, which has your rights outside",
}

// diagnose returns the status for a person.
func diagnose(st *api.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "daemon   %s (%s)\n", visible(st.Version), visible(st.Build))
	fmt.Fprintf(&b, "setting  %s: %s\n", visible(st.Setting), settings[st.Setting])
	for _, l := range st.Layers {
		state := "ok"
		if !l.OK {
			state = "MISSING"
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-8s %-20s %s", state, visible(l.Name), visible(l.Detail)), " ") + "\n")
		if !l.OK && l.Fix != "" {
			fmt.Fprintf(&b, "         fix: %s\n", visible(l.Fix))
		}
	}
	b.WriteString(leftOut(st.LeftOut))
	if st.Ready {
		b.WriteString("every layer holds\n")
	} else {
		b.WriteString("a layer is missing: commands that need it do not run\n")
	}
	return b.String()
}
