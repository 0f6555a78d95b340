/*
 * What the daemon and the keeper say to each other, and the steps at which
 * either can fail. Go reads the constants of this file through cgo, so that
 * there is one list of each.
 *
 *   daemon                              keeper
 *     | -- INIT (+ filters, plan, slots) --> |  once, first: all in memfds
 *     | <- USERNS -------------------------- |  system daemon only: "map me"
 *     | -- MAPPED -------------------------> |
 *     | <- KEEPER (+ pidfd) ---------------- |  the process that stays
 *     | <- READY (+ places) ---------------- |  the new root stands
 *     |                                      |
 *     | <- SPARE (+ socket, pidfd) --------- |  an init that waits for its run; one
 *     | -- NEXT ---------------------------> |    at first, then one for each NEXT
 *     |                                      |
 *     |              init of the spare       |
 *     | <- PROC ------ |                     |  its /proc, by which the daemon counts
 *     | -- RUN ------> |                     |  on its socket (+ stdio, ruleset)
 *     | <- TTY ------- |                     |  the terminal's master, when one is asked for
 *     | <- DOOR ------ |                     |  the socket that listens in the run's own network
 *     |                |                     |    namespace, when there is to be one
 *     | <- STARTED --- |                     |  the receipt, right before the exec
 *     |                x                     |  its pidfd, by which it is signalled, is
 *     |                                      |    readable when it and all beneath it
 *     |                                      |    are gone; how it ended is in its
 *     | -- FREE ---------------------------> |    slot until this
 *
 * Each channel is a SOCK_SEQPACKET socket pair: a message is one packet of at
 * most MSG_MAX bytes, native byte order, and starts with struct head. The
 * keeper ends when the daemon's end is closed. The slots are memory that both
 * share; the daemon does not trust what is in them.
 */
#ifndef PINFOLD_KEEPER_H
#define PINFOLD_KEEPER_H

#include <stdint.h>

enum {
	MSG_MAX = 64 << 10,
	FDS_MAX = 200,
	RUNS_MAX = 64,
	CHANNEL = 3, /* the descriptor that the keeper is started with */
	SCRIPT = 4,  /* the descriptor of a script that is too long for argv */
	FILTERS = 3, /* seccomp programs, see enum filter */
	DOOR_PORT = 3128, /* where the door listens, on 127.0.0.1 of the run's own network namespace */
};

enum msg {
	MSG_INIT = 1, MSG_MAPPED, MSG_NEXT, MSG_RUN, MSG_FREE,
	MSG_USERNS = 16, MSG_KEEPER, MSG_READY, MSG_SPARE, MSG_PROC, MSG_TTY, MSG_DOOR, MSG_STARTED, MSG_FAIL,
};

struct head {
	uint32_t type;
	uint32_t size; /* of the whole message */
	uint64_t id;   /* the slot, where the message is about one */
};

/* An error has a place: the step, its errno, and which item of a list. */
struct fail {
	uint32_t step;
	uint32_t err;
	uint32_t index;
	uint32_t pad;
};

enum step {
	STEP_NONE, STEP_MESSAGE, STEP_GROUPS, STEP_DEVICES, STEP_USERNS, STEP_IDMAP, STEP_IDS,
	STEP_NAMESPACES, STEP_FORK, STEP_PRIVILEGES, STEP_LOOPBACK, STEP_SOURCE, STEP_ROOT, STEP_PLAN,
	STEP_PIVOT, STEP_REPORT, STEP_PROC, STEP_PROC_READONLY, STEP_STDIO, STEP_SESSION, STEP_DIR,
	STEP_LIMITS, STEP_CAPS, STEP_NNP, STEP_LANDLOCK_RULE, STEP_LANDLOCK, STEP_CLOSE, STEP_SECCOMP,
	STEP_PROBE, STEP_EXEC, STEP_TTY, STEP_DOOR,
};

enum {
	RUN_SCRIPT = 1, /* the text comes as a descriptor */
	RUN_STDIN = 2,  /* stdin comes as a descriptor; else it is /dev/null */
	RUN_TTY = 4,    /* stdio is a terminal that is made inside; no descriptor comes for it */
	RUN_DOOR = 8,   /* a network namespace of its own, with a socket that listens for the daemon */
};

enum filter { FILTER_PINNED, FILTER_ANY, FILTER_DOOR /* as pinned, with TCP */ };

enum setting { SETTING_USER, SETTING_SYSTEM };

/* An operation of the mount plan. Paths are absolute inside the new root. */
enum op {
	OP_DIR = 1, /* a: path, arg: mode */
	OP_LINK,    /* a: path, b: target */
	OP_FILE,    /* a: path, b: content, arg: mode */
	OP_BIND,    /* a: path, b: source on the host; set, clear: MOUNT_ATTR_* of the whole tree */
	OP_TMPFS,   /* a: path, b: options, set: MOUNT_ATTR_* */
	OP_DEV,     /* a: path: the minimal /dev */
	OP_DEVPTS,  /* a: path */
	OP_ATTR,    /* a: path, set, clear: MOUNT_ATTR_* of the mount there */
	OP_MODE,    /* a: path, arg: mode */
	OP_REBIND,  /* a: path, b: another place, or empty for the same, set, clear: bound there */
};

enum {
	OPF_OPTIONAL = 1, /* a place that does not exist is passed over */
	OPF_PROJECT = 2,  /* the path is relative to the project and followed beneath it, without symlinks */
	OPF_TREE = 4,     /* OP_ATTR: with all mounts beneath */
};

/* What the probe has to find, and what the receipt says that it found. */
enum {
	PROBE_LANDLOCK_READ = 1 << 0,   /* a readable file outside every rule: EACCES */
	PROBE_LANDLOCK_WRITE = 1 << 1,  /* a writable device node: EACCES */
	PROBE_LANDLOCK_EXEC = 1 << 2,   /* an executable of garbage: EACCES, not ENOEXEC */
	PROBE_SECCOMP = 1 << 3,         /* process_vm_readv of nothing: EPERM, not 0 */
	PROBE_NO_SOCKET = 1 << 4,       /* socket(2): EPERM */
	PROBE_NO_ROUTE = 1 << 5,        /* connect(2) to a documentation address: ENETUNREACH */
	PROBE_PROJECT_READONLY = 1 << 6,
	PROBE_NOEXEC = 1 << 7,          /* project, /usr, /tmp, /var/tmp and home: noexec */
	PROBE_NO_CAPS = 1 << 8,
	PROBE_NNP = 1 << 9,
	PROBE_SECCOMP_MODE = 1 << 10,
	PROBE_IDS = 1 << 11,            /* uid and gid are the caller's */
	PROBE_PIDNS = 1 << 12,          /* second process of its own pid namespace */
	PROBE_ROOT_READONLY = 1 << 13,  /* the new root itself, /usr, /dev and the home */
	PROBE_SCOPE_SIGNAL = 1 << 14,   /* signal 0 to the init, which has the same uid: EPERM */
	PROBE_SCOPE_ABSTRACT = 1 << 15, /* the keeper's abstract socket: EPERM */
	PROBE_LIMITS = 1 << 16,         /* getrlimit(2) says what was set */
	PROBE_PROC_READONLY = 1 << 17,  /* /proc/sys */
	PROBE_MOUNTS = 1 << 18,         /* what the run's plan mounts has the flags that the plan says */
	PROBE_MAPS = 1 << 19,           /* the user namespace has one uid, the caller's */
};

enum { NS_USER, NS_MNT, NS_PID, NS_NET, NS_IPC, NS_UTS, NS_CGROUP, NS_COUNT };

struct receipt {
	uint32_t uid, gid;
	uint32_t seccomp; /* mode: 2 is filter */
	uint32_t filters; /* seccomp filters in force */
	uint32_t probes;  /* PROBE_* that held */
	uint32_t mounts;  /* mounts of the plan that were looked at */
	uint64_t caps;    /* all five sets together */
	uint64_t ns[NS_COUNT];
	uint64_t took_ns; /* the probes */
};

enum { MOUNTS_PROBED = 24 }; /* at most, for the time that it takes */

/* The socket that PROBE_SCOPE_ABSTRACT tries, after the NUL. */
#define ABSTRACT_CANARY "pinfold-canary"

/*
 * Steps that a test has the keeper leave out, to see the command refused. Only
 * a build with PINFOLD_BREAK knows them: see break.go.
 */
enum {
	BREAK_USERNS = 1 << 16, BREAK_NETNS = 1 << 17, BREAK_IPCNS = 1 << 18, BREAK_UTSNS = 1 << 19,
	BREAK_CGROUPNS = 1 << 20, BREAK_MNTNS = 1 << 21, BREAK_PIDNS = 1 << 22, BREAK_BOUNDING = 1 << 23,
	BREAK_CAPS = 1 << 24, BREAK_NNP = 1 << 25, BREAK_LIMITS = 1 << 26, BREAK_LANDLOCK = 1 << 27,
	BREAK_SECCOMP = 1 << 28, BREAK_PROC = 1 << 29, BREAK_MOUNT = 1 << 30, BREAK_IDS = 1 << 15,
	BREAK_LATE = 1 << 14, /* not left out: the first process tells of the keeper late */
	BREAK_DOOR = 1 << 13,
};
#ifdef PINFOLD_BREAK
#define BROKEN(set, bit) (((set) & (bit)) != 0)
#else
#define BROKEN(set, bit) ((void)(set), false)
#endif

struct started {
	struct head head;
	struct receipt receipt;
};

/* With READY: the keeper's own namespaces. */
struct ready {
	struct head head;
	uint64_t ns[NS_COUNT];
};

enum { DIR_SPACE = 4096 };

/* How a run ended. The daemon may read it when the init's pidfd is readable. */
struct ending {
	struct fail fail;      /* step is STEP_NONE when the shell was executed */
	uint32_t finished;     /* 1 when the shell ended by itself: status is valid */
	uint32_t status;       /* as wait(2) gives it */
	uint64_t user_us, system_us;
	uint64_t max_rss_kib;
	uint32_t outlived;     /* processes that were killed because the shell had ended */
	uint32_t pad;
	char dir[DIR_SPACE];   /* where the shell was at its end, absolute; empty when not known */
};

struct failed {
	struct head head;
	struct fail fail;
};

#endif
