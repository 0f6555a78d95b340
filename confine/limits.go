package confine

import (
	"time"

	"golang.org/x/sys/unix"
)

// or fills in what l leaves open.
func (l Limits) or(d Limits) Limits {
	return l.merge(d, func(own, other int64) int64 {
		if own == 0 {
			return other
		}
		return own
	})
}

// within lowers l to most where that says something.
func (l Limits) within(most Limits) Limits {
	return l.merge(most, func(own, other int64) int64 {
		switch {
		case own <= 0:
			return other
		case other == 0:
			return own
		}
		return min(own, other)
	})
}

func (l Limits) merge(o Limits, f func(own, other int64) int64) Limits {
	return Limits{
		Processes:   int(f(int64(l.Processes), int64(o.Processes))),
		MemoryBytes: f(l.MemoryBytes, o.MemoryBytes),
		CPU:         time.Duration(f(int64(l.CPU), int64(o.CPU))),
		FileBytes:   f(l.FileBytes, o.FileBytes),
		OpenFiles:   int(f(int64(l.OpenFiles), int64(o.OpenFiles))),
		DiskBytes:   f(l.DiskBytes, o.DiskBytes),
		Files:       f(l.Files, o.Files),
	}
}

// cpuSeconds is the limit of one process, which bounds it when the sampling does
// not: whole seconds, the next after the limit. 0 is none.
func cpuSeconds(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64(d/time.Second) + 1
}

// machineMemory is what the machine has, in bytes.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
