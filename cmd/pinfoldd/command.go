package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pinfold/pinfold/confine"
)

// A command is how the daemon was called.
type command struct {
	user    bool
	check   bool   // the configuration, and no more
	config  string // the file that was named
	readyFD int
	given   []given  // the flags of settings, in order
	files   []string // what was read of the configuration
}

// A given is a flag that was given.
type given struct {
	setting *setting
	text    string
}

// parseCommand reads the flags. It returns nil, and the exit status, when there
// is nothing more to do.
func parseCommand(args []string) (*command, int) {
	c := &command{}
	flags := flag.NewFlagSet("pinfoldd", flag.ContinueOnError)
	flags.BoolVar(&c.user, "user", false, "serve the calling user only, without privilege")
	flags.StringVar(&c.config, "config", "", "the configuration, a `file`, and the directory FILE.d (default "+systemConfig+", or $XDG_CONFIG_HOME/pinfold/pinfold.toml)")
	flags.BoolVar(&c.check, "check-config", false, "check configuration and policy, say what is wrong, and exit")
	flags.IntVar(&c.readyFD, "ready-fd", -1, "started on demand: say on this `descriptor` that the daemon serves, or why not")
	showVersion := flags.Bool("version", false, "print the version and exit")
	for i := range settings {
		s := &settings[i]
		if s.flag == "" {
			continue
		}
		flags.Func(s.flag, fmt.Sprintf("`%s` of the configuration. %s (default %s)", s.key, s.doc, s.usual), func(text string) error {
			c.given = append(c.given, given{s, text})
			return s.setText(&options{}, text)
		})
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, 0
	case err != nil:
		return nil, 2
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "pinfoldd: takes no operands, see pinfoldd --help\n")
		return nil, 2
	}
	if *showVersion {
		fmt.Printf("pinfoldd %s (%s)\n", version, build)
		return nil, 0
	}
	return c, 0
}

// options reads the configuration. Flags stand above it.
func (c *command) options() (*options, error) {
	o := defaults(c.user)
	file := c.config
	var err error
	switch {
	case file != "":
		file, err = filepath.Abs(file)
	case c.user:
		file, err = userConfig()
	default:
		file = systemConfig
	}
	if err != nil {
		return nil, err
	}
	if c.files, err = readConfig(&o, file, c.config != ""); err != nil {
		return nil, fmt.Errorf("the configuration cannot be used: %w", err)
	}
	for _, g := range c.given {
		if err := g.setting.setText(&o, g.text); err != nil {
			return nil, err
		}
	}
	return &o, o.complete()
}

// bounds reads the configuration again, for what a reload takes of it.
func (c *command) bounds() (confine.Bounds, error) {
	again := *c
	o, err := again.options()
	if err != nil {
		return confine.Bounds{}, err
	}
	return o.bounds(), nil
}

// check is pinfoldd --check-config: what a start would read is read and checked.
func (o *options) check(files []string) error {
	rules, err := o.site.load()
	if err != nil {
		return fmt.Errorf("the policy cannot be used: %w", err)
	}
	_, errProjects := realDirs(o.projects)
	_, errApprovers := o.approvers()
	var errCallers error
	if o.callers != "" {
		_, errCallers = groupID(o.callers)
	}
	if err := errors.Join(errProjects, errApprovers, errCallers); err != nil {
		return err
	}
	if len(files) == 0 {
		files = []string{"no file: the defaults"}
	}
	fmt.Printf("configuration  %s\npolicy         %s (%.12s)\nboth are good\n", strings.Join(files, "\n               "), o.site.path, rules.Hash())
	return nil
}
