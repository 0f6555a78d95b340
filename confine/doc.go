// Package confine runs one shell command so that the kernel holds it to its
// grant: it turns a [policy.Grant] into namespaces, a mount view, a Landlock
// ruleset and seccomp filters, runs the text in bash, and returns how it ended
// with a receipt of what was in force.
//
// # What holds
//
//   - The command sees a root of its own: the system's programs and libraries,
//     a curated /etc, a minimal /dev, a fresh /proc, a /tmp of its session, a
//     home without configuration, and the project at its own path. Nothing
//     else of the host exists.
//   - The mount view is the boundary for writes: the project is mounted
//     read-only and the places of the grant are bound writable, which stops
//     chmod, utimes and truncate too. Landlock repeats it and adds the rest of
//     what it can (signals and abstract sockets from ABI 6).
//   - Under a pinned grant (a closed list of programs) everything is mounted
//     noexec but the library directories, bash and the listed programs, so
//     that no other code is mapped executable: not through the dynamic loader,
//     LD_PRELOAD, enable -f or a memfd. Landlock repeats that for execve.
//   - Of the project, what the policy protects and what steers git, at every
//     depth, is read-only even where the grant writes (survey.go); its parents
//     are mount points, so that none can be renamed away; what appears of it is
//     taken away when the command has ended (quarantine.go). What the policy
//     hides reads as empty, but for what git tracks.
//   - The network is the session's own loopback; under a pinned grant there is
//     no socket(2) at all. A command whose grant names hosts has a network
//     namespace of its own, with a loopback and on it the door to those hosts
//     (package door) as the only way out; under a pinned grant it has sockets for
//     TCP, and with Landlock ABI 4 to the door's port alone.
//   - No capability, no set-uid program, no set-uid bit, no foreign system
//     call ABI, no namespace and no mount of its own.
//   - Nothing outlives the command: it has a pid namespace of its own, and the
//     result is final when that is empty.
//   - Every layer is applied and then probed from the inside, right before the
//     shell is executed. A layer that is missing or does not bite is an
//     [Unavailable] error that names it, and nothing runs.
//   - Memory, processes, processor time, the size of files, and what file
//     systems may grow by are bounded, by a cgroup v2 where one was delegated
//     and else by rlimits and sampling; the receipt says which ([Limits]).
//
// # How
//
// A session (one per caller and project, kept warm) is a keeper: a small C
// process, see keeper.c, that holds the user, network and uts namespaces and
// the root. Each command is forked from it into pid, mount and ipc namespaces
// of its own, where the mounts that its grant needs are made. Everything that
// can be prepared in Go is: the mount plan, the Landlock ruleset and the
// seccomp programs go to the keeper as data and descriptors.
//
// The daemon is root (the commands run as the calling user, with his groups)
// or an ordinary user (they run as that user). Root's daemon makes the user
// namespace while privileged, so that the caller's own processes can neither
// enter nor trace what is inside.
//
// # Not promised
//
//   - A protected or hidden file that the host replaces loses its mount; the run
//     ends within milliseconds of that, not before. A protected name that a
//     command makes is there until the command has ended.
//   - Names in directories of dependencies (node_modules, .venv, target, …) are
//     not looked for, nor in more than 20,000 directories without being read
//     anew for each command. What git's index has of the same content stays,
//     also when the command itself added it there.
//   - A protected name that is a symbolic link can be replaced by a command that
//     may write where it lies.
//   - Without a cgroup v2, a caller that is not root is bounded in processes by
//     RLIMIT_NPROC over all commands of its session together; memory is sampled,
//     so that a command can pass its limit for some 50 ms before it is ended.
//   - What file systems grow by is measured on the whole of them: it is charged
//     to a command also when somebody else writes there meanwhile.
//   - Programs that lie among the system's libraries can be started through the
//     loader under a pinned grant.
//   - File systems mounted inside the project are visible and stay read-only.
//   - /proc/self/mountinfo shows where on the host the mounts come from.
package confine
