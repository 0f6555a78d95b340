package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/cmd/pinfoldd/server"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/trace"
)

// A setting is one key of pinfold.toml. The manual page pinfold.toml(5) is
// printed from them, so that it lists what the daemon reads.
type setting struct {
	key  string // "trace.sync" is sync in the table trace
	flag string // of pinfoldd, for the same; "" for none
	// where the value is kept: a *string, *[]string, *bool, *int64 or
	// *time.Duration.
	in func(*options) any
	// A number lies from least to most; 0 for most is no bound. A duration is
	// bounded in seconds.
	least, most int64
	oneOf       []string // what a string may be; nil for anything
	isPath      bool     // of strings: absolute paths
	usual       string   // what holds when it is not given, in words
	reloads     bool     // a reload takes a new value, for runs that start afterwards
	doc         string
}

const mib = 1 << 20

// settings are all keys, in the order of the manual page.
var settings = []setting{
	{key: "socket", flag: "socket", in: func(o *options) any { return &o.socket }, isPath: true,
		usual: api.SystemSocket + ", or $XDG_RUNTIME_DIR/pinfold/agent.sock",
		doc:   "The socket that agents connect to. The control socket is control.sock beside it. Under systemd the socket units say where both are, and this must agree."},
	{key: "state", flag: "state", in: func(o *options) any { return &o.state }, isPath: true,
		usual: systemState + ", or $XDG_STATE_HOME/pinfold",
		doc:   "The directory of the trace and of the caches that commands keep from one run to the next."},
	{key: "policy", flag: "policy", in: func(o *options) any { return &o.policy }, isPath: true,
		usual: systemPolicy + ", or $XDG_CONFIG_HOME/pinfold/policy.toml; none is the built-in policy",
		doc:   "The site's policy. A file that is named must be there."},
	{key: "idle", flag: "idle", in: func(o *options) any { return &o.idle },
		usual: "0s; with --user 15m",
		doc:   "The daemon ends after so long without a request. 0s is never."},
	{key: "callers", in: func(o *options) any { return &o.callers },
		usual: "everybody",
		doc:   "A group: only its members, and root, may send commands. The kernel says who they are, whatever the mode of the socket."},
	{key: "approvers", in: func(o *options) any { return &o.approverGroup },
		usual: approverGroup,
		doc:   "The group whose members may approve and control, besides root. Under systemd the control socket's unit must name the same group."},
	{key: "projects", in: func(o *options) any { return &o.projects }, isPath: true,
		usual: "every directory that its caller owns",
		doc:   "Directories: a project must be one of them or lie beneath one. Symlinks are followed."},

	{key: "trace.sync", flag: "trace-sync", in: func(o *options) any { return &o.traceSync }, oneOf: []string{"written", "always"},
		usual: "written",
		doc:   "When a record counts: written, so that it survives the death of any process and is on the disk within a second; or always, on the disk before the command starts, at the disk's price."},
	{key: "trace.keep", flag: "trace-keep", in: func(o *options) any { return &o.traceKeep }, least: 1,
		usual: duration(trace.DefaultKeep), doc: "Segments of the trace are removed so long after their last record."},
	{key: "trace.keep_mib", flag: "trace-keep-mib", in: func(o *options) any { return &o.traceMiB }, least: 1, most: 1 << 30,
		usual: number(trace.DefaultKeepBytes / mib), doc: "The oldest segments are removed when all of them together are larger."},
	{key: "trace.segment_mib", in: func(o *options) any { return &o.segmentMiB }, least: 1, most: 1 << 20,
		usual: number(trace.DefaultSegment / mib), doc: "A new segment is begun at this size, and each day."},

	{key: "limits.memory_mib", in: func(o *options) any { return &o.memoryMiB }, least: 16, most: 1 << 30, reloads: true,
		usual: number(confine.DefaultLimits.MemoryBytes/mib) + ", at most three quarters of the machine's",
		doc:   "Memory of one command with all its processes. A command that uses more is ended with OUT_OF_MEMORY."},
	{key: "limits.processes", in: func(o *options) any { return &o.processes }, least: 8, most: 1 << 20, reloads: true,
		usual: number(int64(confine.DefaultLimits.Processes)), doc: "Processes and threads of one command at once."},
	{key: "limits.cpu", in: func(o *options) any { return &o.cpu }, reloads: true,
		usual: "0s, which is no limit", doc: "Processor time of one command, all its processes together."},
	{key: "limits.file_mib", in: func(o *options) any { return &o.fileMiB }, least: 1, most: 1 << 30, reloads: true,
		usual: number(confine.DefaultLimits.FileBytes / mib), doc: "The largest file that a command can write."},
	{key: "limits.open_files", in: func(o *options) any { return &o.openFiles }, least: 64, most: 1 << 20, reloads: true,
		usual: number(int64(confine.DefaultLimits.OpenFiles)), doc: "Open files of one process."},
	{key: "limits.disk_mib", in: func(o *options) any { return &o.diskMiB }, least: 1, most: 1 << 30, reloads: true,
		usual: number(confine.DefaultLimits.DiskBytes / mib), doc: "A command is ended when a file system that it writes has grown by so much meanwhile."},
	{key: "limits.files", in: func(o *options) any { return &o.files }, least: 1, most: 1 << 40, reloads: true,
		usual: number(confine.DefaultLimits.Files), doc: "A command is ended when the number of files has grown by so many meanwhile."},

	{key: "reserve.percent", in: func(o *options) any { return &o.reservePercent }, least: 0, most: 90, reloads: true,
		usual: number(int64(confine.DefaultReserve.Percent)), doc: "Of each file system that commands write so much stays free, or reserve.mib when that is less."},
	{key: "reserve.mib", in: func(o *options) any { return &o.reserveMiB }, least: 1, most: 1 << 30, reloads: true,
		usual: number(confine.DefaultReserve.Bytes / mib), doc: "See reserve.percent."},

	{key: "require.cgroup", in: func(o *options) any { return &o.requireCgroup }, reloads: true,
		usual: "false", doc: "Refuse every command where no cgroup v2 bounds its memory and its processes. Else memory is sampled, and the result says so."},
	{key: "require.landlock_abi", in: func(o *options) any { return &o.landlockABI }, least: 2, most: 1000,
		usual: "2, which is Linux 5.19", doc: "Do not start on a kernel whose Landlock is older."},
	{key: "require.no_mounts", in: func(o *options) any { return &o.refuseMounts }, reloads: true,
		usual: "false", doc: "Refuse commands in a project that file systems are mounted in. Else they come along, read-only, and the result lists them."},

	{key: "sessions.idle", in: func(o *options) any { return &o.sessionIdle }, least: 1,
		usual: "10m", doc: "A session, which is what is kept ready for a caller and project, ends after so long without a command."},
	{key: "sessions.most", in: func(o *options) any { return &o.sessions }, least: 1, most: 1024,
		usual: "8", doc: "Sessions of one caller at once."},

	{key: "requests.runs", in: func(o *options) any { return &o.caps.Runs }, least: 1, most: 4096,
		usual: number(server.DefaultCaps.Runs), doc: "Commands of one caller at once, those in the background and checks included."},
	{key: "requests.waiting", in: func(o *options) any { return &o.caps.Waiting }, least: 0, most: 4096,
		usual: number(server.DefaultCaps.Waiting), doc: "Requests of one caller that wait for another of his commands to end. Those beyond are refused with BUSY."},
	{key: "requests.wait", in: func(o *options) any { return &o.caps.Wait }, least: 0,
		usual: duration(server.DefaultCaps.Wait), doc: "For so long, and then they are refused too."},
	{key: "requests.connections", in: func(o *options) any { return &o.caps.Connections }, least: 1, most: 1 << 16,
		usual: number(server.DefaultCaps.Connections), doc: "Open connections of one caller. Those beyond are closed at once."},
}

// defaults are the values of what is not given. Places are found later.
func defaults(user bool) options {
	l := confine.DefaultLimits
	o := options{
		user: user, approverGroup: approverGroup,
		traceSync: "written", traceKeep: trace.DefaultKeep, traceMiB: trace.DefaultKeepBytes / mib, segmentMiB: trace.DefaultSegment / mib,
		memoryMiB: l.MemoryBytes / mib, processes: int64(l.Processes), fileMiB: l.FileBytes / mib, openFiles: int64(l.OpenFiles),
		diskMiB: l.DiskBytes / mib, files: l.Files,
		reservePercent: int64(confine.DefaultReserve.Percent), reserveMiB: confine.DefaultReserve.Bytes / mib,
		landlockABI: 2, sessionIdle: 10 * time.Minute, sessions: 8, caps: server.DefaultCaps,
	}
	if user {
		o.idle = userIdle
	}
	return o
}

// bounds returns the limits of every command.
func (o *options) bounds() confine.Bounds {
	return confine.Bounds{
		Limits: confine.Limits{MemoryBytes: o.memoryMiB * mib, Processes: int(o.processes), CPU: o.cpu, FileBytes: o.fileMiB * mib,
			OpenFiles: int(o.openFiles), DiskBytes: o.diskMiB * mib, Files: o.files},
		Reserve:       confine.Reserve{Percent: int(o.reservePercent), Bytes: o.reserveMiB * mib},
		RequireCgroup: o.requireCgroup, RefuseMounts: o.refuseMounts,
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// duration shows a time without its zeros: 15m, not 15m0s.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// kind says what a value must be, for messages and the manual page.
func (s *setting) kind() string {
	switch s.in(&options{}).(type) {
	case *bool:
		return "true or false"
	case *int64:
		return "a whole number"
	case *time.Duration:
		return `a time such as "90s" or "15m"`
	case *[]string:
		return `a list of absolute paths, each in quotes`
	}
	switch {
	case s.isPath:
		return "an absolute path, in quotes"
	case s.oneOf != nil:
		return `"` + strings.Join(s.oneOf, `" or "`) + `"`
	}
	return "a name, in quotes"
}

// set sets the value, as TOML has it.
func (s *setting) set(o *options, value any) error {
	wrong := fmt.Errorf("%s: must be %s", s.key, s.kind())
	switch into := s.in(o).(type) {
	case *string:
		text, ok := value.(string)
		if !ok || text == "" || strings.ContainsRune(text, 0) || s.isPath && !filepath.IsAbs(text) || s.oneOf != nil && !slices.Contains(s.oneOf, text) {
			return wrong
		}
		*into = text
	case *[]string:
		list, ok := value.([]any)
		if !ok {
			return wrong
		}
		*into = nil
		for _, item := range list {
			text, ok := item.(string)
			if !ok || !filepath.IsAbs(text) {
				return wrong
			}
			*into = append(*into, filepath.Clean(text))
		}
	case *bool:
		is, ok := value.(bool)
		if !ok {
			return wrong
		}
		*into = is
	case *int64:
		n, ok := value.(int64)
		if !ok {
			return wrong
		}
		if n < s.least || s.most > 0 && n > s.most {
			return fmt.Errorf("%s: must be from %d to %d", s.key, s.least, s.most)
		}
		*into = n
	case *time.Duration:
		text, _ := value.(string)
		d, err := time.ParseDuration(text)
		if err != nil {
			return wrong
		}
		if d < time.Duration(s.least)*time.Second {
			return fmt.Errorf("%s: must be at least %ds", s.key, s.least)
		}
		*into = d
	}
	return nil
}

// setText sets the value as a flag gives it. A path is relative to here.
func (s *setting) setText(o *options, text string) error {
	var value any = text
	switch s.in(o).(type) {
	case *int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("must be %s", s.kind())
		}
		value = n
	case *string:
		if s.isPath && text != "" {
			path, err := filepath.Abs(text)
			if err != nil {
				return err
			}
			value = path
		}
	}
	return s.set(o, value)
}

// settingOf returns the setting with the key, nil when there is none.
func settingOf(key string) *setting {
	if i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key }); i >= 0 {
		return &settings[i]
	}
	return nil
}

// similar names the keys that stand where the key does.
func similar(key string) string {
	table := ""
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		table = key[:i+1]
	}
	var there, all []string
	for _, s := range settings {
		if strings.HasPrefix(s.key, table) && !strings.Contains(s.key[len(table):], ".") {
			there = append(there, s.key)
		}
		all = append(all, s.key)
	}
	if there == nil {
		there = all
	}
	return "want one of " + strings.Join(there, ", ")
}
