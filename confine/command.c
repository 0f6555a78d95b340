/*
 * One command: its init, which is pid 1 of the command's own pid namespace,
 * and the process that becomes the shell. Both read as a list of steps; the
 * reason for each step's place is beside it.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STRINGS_MAX = 512 };

struct run {
	uint32_t filter, probes, flags, nproc, landlock_flags;
	uint32_t rows, columns;
	uint64_t file_bytes, open_files, cpu_seconds;
	const char *dir, *shell;
	uint32_t nrules, nops;
	struct { uint64_t access; const char *path; } rules[16];
	struct reader ops; /* where the operations begin */
	const char *argv[STRINGS_MAX], *envp[STRINGS_MAX];
	int in, out, err, ruleset, script; /* -1: none */
};

static struct ending *ending_of_run;

/* Leaves the place of the error for the keeper and ends the process. */
static __attribute__((noreturn)) void fail(enum step step, uint32_t index)
{
	ending_of_run->fail = (struct fail){ .step = step, .err = (uint32_t)errno, .index = index };
	_exit(1);
}

static void refuse(void)
{
	errno = EBADMSG;
	fail(STEP_MESSAGE, 3);
}

/* n strings and the NULL that ends them. */
static void read_strings(struct reader *r, uint32_t n, const char *strings[STRINGS_MAX])
{
	if (n >= STRINGS_MAX)
		refuse();
	for (uint32_t i = 0; i < n; i++)
		strings[i] = read_str(r, NULL);
	strings[n] = NULL;
}

/* Which descriptors came with the run is said by its flags alone. */
static void read_descriptors(struct run *run, const int *fds, int nfds)
{
	const struct { bool comes; int *fd; } order[] = {
		{ !(run->flags & RUN_TTY), &run->out },
		{ !(run->flags & RUN_TTY), &run->err },
		{ true, &run->ruleset },
		{ run->flags & RUN_SCRIPT, &run->script },
		{ run->flags & RUN_STDIN && !(run->flags & RUN_TTY), &run->in },
	};
	int n = 0;

	for (size_t i = 0; i < COUNT(order); i++) {
		if (order[i].comes && n == nfds)
			refuse();
		*order[i].fd = order[i].comes ? fds[n++] : -1;
	}
	if (n != nfds)
		refuse();
}

static void read_run(struct run *run, struct reader *r, const int *fds, int nfds)
{
	run->filter = read_u32(r);
	run->probes = read_u32(r);
	run->flags = read_u32(r);
	run->nproc = read_u32(r);
	run->landlock_flags = read_u32(r);
	run->nrules = read_u32(r);
	run->nops = read_u32(r);
	uint32_t nargs = read_u32(r), nenv = read_u32(r);
	run->rows = read_u32(r);
	run->columns = read_u32(r);
	run->file_bytes = read_u64(r);
	run->open_files = read_u64(r);
	run->cpu_seconds = read_u64(r);
	run->dir = read_str(r, NULL);
	run->shell = read_str(r, NULL);
	if (r->bad || run->filter >= FILTERS || run->nrules > COUNT(run->rules))
		refuse();
	for (uint32_t i = 0; i < run->nrules; i++) {
		run->rules[i].access = read_u64(r);
		run->rules[i].path = read_str(r, NULL);
	}
	read_strings(r, nargs, run->argv);
	read_strings(r, nenv, run->envp);
	if (r->bad || !nargs)
		refuse();
	read_descriptors(run, fds, nfds);
}

/*
 * A proc of this pid namespace. Sysctls are read-only, and pressure, where anyone
 * may have the kernel watch the machine; for uid 0 all that steers the machine:
 * the kernel lets euid 0 write there without any capability.
 */
static void mount_proc(bool root, uint32_t breaks)
{
	/* what tells of the machine's memory and is root's to read */
	static const char *const masked[] = { "kcore", "keys", "kmsg", "kpagecount", "kpageflags", "kpagecgroup",
					      "vmallocinfo", "slabinfo", "timer_list", "iomem" };
	static const char *const parts[] = { "sys", "pressure", "sysrq-trigger", "irq", "bus", "fs" };
	char path[32];

	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
		fail(STEP_PROC, 1);
	for (uint32_t i = BROKEN(breaks, BREAK_PROC); i < (root ? COUNT(parts) : 2); i++) {
		snprintf(path, sizeof path, "/proc/%s", parts[i]);
		struct operation op = { .kind = OP_REBIND, .flags = OPF_OPTIONAL, .a = path,
					.set = MOUNT_ATTR_RDONLY };
		if (apply(&op, -1, -1))
			fail(STEP_PROC_READONLY, i);
	}
	for (uint32_t i = 0; root && i < COUNT(masked); i++) {
		snprintf(path, sizeof path, "/proc/%s", masked[i]);
		struct operation op = { .kind = OP_REBIND, .flags = OPF_OPTIONAL, .a = path, .b = "/dev/null", .b_len = 9,
					/* without devices: it cannot even be opened */
					.set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV };
		if (apply(&op, -1, -1))
			fail(STEP_PROC_READONLY, (uint32_t)COUNT(parts) + i);
	}
}

/* What the daemon sends to the init is for all that runs here. */
static void pass_on(int sig)
{
	int err = errno;

	kill(-1, sig);
	errno = err;
}

static void pass_signals_on(void)
{
	static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP };
	struct sigaction action = { .sa_handler = pass_on, .sa_flags = SA_RESTART };

	for (size_t i = 0; i < COUNT(signals); i++)
		sigaction(signals[i], &action, NULL);
}

/*
 * Ends what has outlived the shell, and counts it. No process can be born past
 * this: the kernel refuses a fork while a signal is pending.
 */
static uint32_t end_the_rest(void)
{
	uint32_t killed = 0;
	int status;
	pid_t pid;

	if (kill(-1, SIGKILL))
		return 0; /* there is none */
	while ((pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR)
		if (pid > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			killed++;
	return killed;
}

/*
 * The init shares its directory with the shell (CLONE_FS), so that it stands
 * where the shell was at its end, and the text need not be added to.
 */
static void note_dir(void)
{
	if (syscall(SYS_getcwd, ending_of_run->dir, sizeof ending_of_run->dir) < 0)
		ending_of_run->dir[0] = '\0';
}

static __attribute__((noreturn)) void reap_until(pid_t shell)
{
	struct rusage use;
	int status;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, &status, 0);
		if (pid == shell)
			break;
		if (pid < 0 && errno == ECHILD) /* it failed before it was the shell's turn */
			_exit(1);
	}
	note_dir();
	ending_of_run->outlived = end_the_rest();
	getrusage(RUSAGE_CHILDREN, &use);
	ending_of_run->status = (uint32_t)status;
	ending_of_run->user_us = (uint64_t)use.ru_utime.tv_sec * 1000000 + (uint64_t)use.ru_utime.tv_usec;
	ending_of_run->system_us = (uint64_t)use.ru_stime.tv_sec * 1000000 + (uint64_t)use.ru_stime.tv_usec;
	ending_of_run->max_rss_kib = (uint64_t)use.ru_maxrss;
	ending_of_run->finished = 1;
	/* the kernel kills all of the pid namespace, stopped and daemonised
	 * processes too, before it lets pid 1 be reaped */
	_exit(0);
}

static int landlock_allow(int ruleset, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access };

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return -1;
	long r = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
	int err = errno;
	close(rule.parent_fd);
	errno = err;
	return r ? -1 : 0;
}

enum { LIMITS = 5 };

struct limit {
	int what;
	rlim_t most;
};

static void limits_of(const struct run *run, struct limit limits[LIMITS])
{
	const struct limit list[LIMITS] = {
		/* no file can be so small, and no handler of the host is started
		 * for it (core(5)); the filter keeps it so */
		{ RLIMIT_CORE, 1 },
		{ RLIMIT_FSIZE, run->file_bytes },
		{ RLIMIT_NOFILE, run->open_files },
		{ RLIMIT_NPROC, run->nproc },
		{ RLIMIT_CPU, run->cpu_seconds ? run->cpu_seconds : RLIM_INFINITY },
	};

	memcpy(limits, list, sizeof list);
}

static void set_limits(const struct run *run)
{
	struct limit limits[LIMITS];

	limits_of(run, limits);
	for (uint32_t i = BROKEN(run->flags, BREAK_LIMITS); i < LIMITS; i++) {
		struct rlimit l = { limits[i].most, limits[i].most };
		if (setrlimit(limits[i].what, &l))
			fail(STEP_LIMITS, i);
	}
}

static uint32_t probe_limits(const struct run *run)
{
	struct limit limits[LIMITS];
	struct rlimit l;

	limits_of(run, limits);
	for (uint32_t i = 0; i < LIMITS; i++)
		if (getrlimit(limits[i].what, &l) || l.rlim_cur != limits[i].most || l.rlim_max != limits[i].most)
			return 0;
	return PROBE_LIMITS;
}

static void install(const struct program *p)
{
	struct sock_fprog prog = { p->count, p->insns };

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
		fail(STEP_SECCOMP, 0);
}

static void stdio(const struct run *run)
{
	/* never a socket: bash takes one for a remote shell and reads ~/.bashrc;
	 * /dev/null for no stdin, since tools take an empty pipe for their input */
	int in = run->in >= 0 ? run->in : open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (in < 0 || dup2(in, 0) < 0 || dup2(run->out, 1) < 0 || dup2(run->err, 2) < 0)
		fail(STEP_STDIO, 0);
}

/*
 * A terminal of the command's own devpts. The daemon gets its master; the other
 * end is stdio.
 */
static void open_terminal(struct run *run, int socket)
{
	struct head m = { MSG_TTY, sizeof m, 0 };
	struct winsize size = { .ws_row = (unsigned short)run->rows, .ws_col = (unsigned short)run->columns };
	int zero = 0, master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (master < 0 || ioctl(master, TIOCSPTLCK, &zero) || ioctl(master, TIOCSWINSZ, &size))
		fail(STEP_TTY, 0);
	run->in = run->out = run->err = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (run->in < 0)
		fail(STEP_TTY, 1);
	if (transmit(socket, &m, sizeof m, &master, 1))
		_exit(1); /* the daemon is gone */
	close(master);
}

static bool no_route(int fd)
{
	/* 192.0.2.0/24 is for documentation (RFC 5737): no one is there */
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(9),
				 .sin_addr.s_addr = htonl(0xc0000201) };

	return connect(fd, (struct sockaddr *)&a, sizeof a) < 0 && (errno == ENETUNREACH || errno == EACCES);
}

static bool mount_has(const char *path, unsigned long flag)
{
	struct statfs st;

	return statfs(path, &st) == 0 && (unsigned long)st.f_flags & flag;
}

static bool opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool refused(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == EACCES;
}

/* A number after a name in /proc/self/status, in the given base. */
static uint64_t status_field(const char *text, const char *name, int base)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, base) : UINT64_MAX;
}

/* The whole of a small file of /proc, or an empty string. */
static void read_proc(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n < 0 ? 0 : n] = '\0';
}

/*
 * What the shell has from its init, because nothing but a clone without any flag
 * for it lies between them: looked at in the spare's time, since /proc is slow.
 */
static struct receipt inherited;

static void probe_inherited(const struct session *s)
{
	static const char *const sets[] = { "\nCapInh:", "\nCapBnd:", "\nCapAmb:" };
	static char text[4096];
	char want[64];

	namespaces(inherited.ns);
	read_proc("/proc/self/status", text, sizeof text);
	for (size_t i = 0; i < COUNT(sets); i++)
		inherited.caps |= status_field(text, sets[i], 16);
	inherited.filters = (uint32_t)status_field(text, "\nSeccomp_filters:", 10);
	read_proc("/proc/self/uid_map", text, sizeof text);
	snprintf(want, sizeof want, "%10u %10u %10u\n", s->uid, s->uid, 1);
	if (strcmp(text, want) == 0)
		inherited.probes |= PROBE_MAPS;
}

/*
 * A network namespace with a loopback, and on it a socket that the daemon gets: what
 * it accepts there is the only way out. The canary is what the session's own
 * namespace has.
 */
static void open_door(const struct run *run, int socket_of_run)
{
	struct head m = { MSG_DOOR, sizeof m, 0 };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(DOOR_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	if (!BROKEN(run->flags, BREAK_DOOR) && unshare(CLONE_NEWNET))
		fail(STEP_DOOR, 0);
	if (!BROKEN(run->flags, BREAK_DOOR) && (loopback_up() || canary_socket() < 0))
		fail(STEP_DOOR, 1);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 1024))
		fail(STEP_DOOR, 2);
	if (transmit(socket_of_run, &m, sizeof m, &fd, 1))
		_exit(1); /* the daemon is gone */
	close(fd);
	namespaces(inherited.ns);
}

static uint32_t probe_credentials(struct receipt *r, const struct session *s)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct c[2];
	uint32_t found = 0;
	uid_t ids[3] = { 0 };
	gid_t gids[3] = { 0 };

	if (syscall(SYS_capget, &head, c) || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0, 0))
		return 0;
	for (size_t i = 0; i < COUNT(c); i++)
		r->caps |= (uint64_t)(c[i].effective | c[i].permitted | c[i].inheritable) << (32 * i);
	if (!r->caps)
		found |= PROBE_NO_CAPS;
	getresuid(&ids[0], &ids[1], &ids[2]);
	getresgid(&gids[0], &gids[1], &gids[2]);
	r->uid = ids[0];
	r->gid = gids[0];
	for (size_t i = 0; i < COUNT(ids); i++)
		if (ids[i] != s->uid || gids[i] != s->gid)
			return found;
	return found | PROBE_IDS;
}

static uint32_t probe_filter(struct receipt *r, bool installed)
{
	int mode = prctl(PR_GET_SECCOMP);
	uint32_t found = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? PROBE_NNP : 0;

	r->seccomp = mode < 0 ? 0 : (uint32_t)mode;
	r->filters += installed;
	if (r->seccomp == SECCOMP_MODE_FILTER && r->filters == 1)
		found |= PROBE_SECCOMP_MODE;
	return found;
}

/*
 * What the plan mounted in the project, read-only or not, as the path leads to it
 * now: the plan's last word on a place counts. At most MOUNTS_PROBED of them.
 */
static bool mounts_hold(struct receipt *r, const struct run *run, const struct session *s)
{
	struct reader rest = run->ops;
	size_t len = strlen(s->project), n;
	char path[DIR_SPACE + 1024];

	if (len >= DIR_SPACE)
		return false;
	memcpy(path, s->project, len);
	path[len++] = '/';
	for (uint32_t i = 0; i < run->nops && r->mounts < MOUNTS_PROBED; i++) {
		struct operation op, later;
		struct statfs st;
		bool last = true;

		read_op(&rest, &op);
		if (op.kind != OP_REBIND || !(op.flags & OPF_PROJECT))
			continue;
		struct reader ahead = rest;
		for (uint32_t j = i + 1; j < run->nops && last; j++) {
			read_op(&ahead, &later);
			last = strcmp(later.a, op.a) != 0;
		}
		if (!last)
			continue;
		n = strlen(op.a);
		if (n >= sizeof path - len)
			return false;
		memcpy(path + len, op.a, n + 1);
		if (statfs(path, &st)) {
			if (op.flags & OPF_OPTIONAL)
				continue;
			return false;
		}
		bool readonly = (unsigned long)st.f_flags & ST_RDONLY;
		if ((op.set & MOUNT_ATTR_RDONLY && !readonly) || (op.clear & MOUNT_ATTR_RDONLY && readonly))
			return false;
		r->mounts++;
	}
	return true;
}

static uint32_t probe_landlock(void)
{
	static char *const none[] = { NULL };
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "\0" ABSTRACT_CANARY };
	uint32_t found = 0;

	if (refused("/.pinfold/read", O_RDONLY))
		found |= PROBE_LANDLOCK_READ;
	if (refused("/.pinfold/write", O_WRONLY))
		found |= PROBE_LANDLOCK_WRITE;
	execve("/.pinfold/exec", none, none);
	if (errno == EACCES)
		found |= PROBE_LANDLOCK_EXEC;
	if (kill(1, 0) < 0 && errno == EPERM)
		found |= PROBE_SCOPE_SIGNAL;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		if (connect(fd, (struct sockaddr *)&a, offsetof(struct sockaddr_un, sun_path) + sizeof ABSTRACT_CANARY) < 0 &&
		    errno == EPERM)
			found |= PROBE_SCOPE_ABSTRACT;
		close(fd);
	}
	return found;
}

static uint32_t probe_seccomp(void)
{
	uint32_t found = 0;
	int fd, pair[2];

	if (process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) < 0 && errno == EPERM)
		found |= PROBE_SECCOMP;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 && errno == EPERM && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0 && errno == EPERM) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0 && errno == EPERM)
			found |= PROBE_NO_SOCKET;
	}
	if (fd >= 0 && no_route(fd))
		found |= PROBE_NO_ROUTE;
	if (fd >= 0)
		close(fd);
	return found;
}

static uint32_t probe_mounts(const struct session *s, bool pinned)
{
	struct statfs project = { 0 }, home = { 0 }, usr = { 0 };
	uint32_t found = 0;

	statfs(s->project, &project);
	statfs(s->home, &home);
	statfs("/usr", &usr);
	if (project.f_flags & ST_RDONLY)
		found |= PROBE_PROJECT_READONLY;
	if (pinned && project.f_flags & ST_NOEXEC && usr.f_flags & ST_NOEXEC && home.f_flags & ST_NOEXEC &&
	    mount_has("/tmp", ST_NOEXEC) && mount_has("/var/tmp", ST_NOEXEC))
		found |= PROBE_NOEXEC;
	if (usr.f_flags & ST_RDONLY && home.f_flags & ST_RDONLY && mount_has("/", ST_RDONLY) && mount_has("/dev", ST_RDONLY))
		found |= PROBE_ROOT_READONLY;
	if (mount_has("/proc/sys", ST_RDONLY))
		found |= PROBE_PROC_READONLY;
	return found;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/*
 * Tries from the inside what the layers have to stop. Each canary exists and
 * would succeed without its layer: an answer of the kernel, not of a setting.
 */
static void probe(struct receipt *r, const struct run *run, const struct session *s)
{
	r->probes |= probe_credentials(r, s) | probe_filter(r, !BROKEN(run->flags, BREAK_SECCOMP)) | probe_landlock() |
		     probe_seccomp() | probe_mounts(s, run->filter != FILTER_ANY) | probe_limits(run);
	if (getpid() == 2)
		r->probes |= PROBE_PIDNS;
}

void namespaces(uint64_t ns[NS_COUNT])
{
	static const char *const names[NS_COUNT] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
	int dir = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	for (int i = 0; i < NS_COUNT; i++)
		ns[i] = fstatat(dir, names[i], &st, 0) ? 0 : st.st_ino;
	if (dir >= 0)
		close(dir);
}

static void send_receipt(int socket, const struct receipt *r)
{
	struct started m = { { MSG_STARTED, sizeof m, 0 }, *r };

	if (transmit(socket, &m, sizeof m, NULL, 0))
		_exit(1); /* the daemon is gone */
}

/* What the shell's process is given: it runs on a stack of its own. */
struct start {
	const struct session *session;
	struct run *run;
	int project, socket;
};

static int shell(void *arg)
{
	const struct start *start = arg;
	const struct session *s = start->session;
	struct run *run = start->run;
	int project = start->project, socket = start->socket;
	struct receipt receipt = inherited;
	struct __user_cap_header_struct cap = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { 0 };
	sigset_t empty;

	/* stdio first: what is open below 3 is the command's own */
	stdio(run);
	/* its own process group, and no terminal but the one that was asked for */
	if (setsid() < 0)
		fail(STEP_SESSION, 0);
	if (run->flags & RUN_TTY && ioctl(0, TIOCSCTTY, 0))
		fail(STEP_TTY, 2);
	/* after the mounts, so that the directory is the topmost view of it */
	int dir = open_beneath(project, run->dir, O_PATH | O_DIRECTORY);
	if (dir < 0 || fchdir(dir))
		fail(STEP_DIR, 0);
	uint64_t begin = now_ns();
	if (mounts_hold(&receipt, run, s))
		receipt.probes |= PROBE_MOUNTS;
	receipt.took_ns = now_ns() - begin;
	/* limits before the command can start anything */
	set_limits(run);
	/* capabilities: no mount can be changed from here on */
	if (!BROKEN(run->flags, BREAK_CAPS) && syscall(SYS_capset, &cap, none))
		fail(STEP_CAPS, 0);
	/* the keeper has set it for good; Landlock and seccomp rely on it */
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
		errno = EPERM;
		fail(STEP_NNP, 0);
	}
	/* the canaries prove something only where they are within reach */
	if (!opens("/.pinfold/read", O_RDONLY) || !opens("/.pinfold/write", O_WRONLY))
		fail(STEP_PROBE, PROBE_LANDLOCK_READ | PROBE_LANDLOCK_WRITE);
	/* Landlock before the descriptors go: it needs the ruleset's */
	if (!BROKEN(run->flags, BREAK_LANDLOCK) && syscall(SYS_landlock_restrict_self, run->ruleset, run->landlock_flags))
		fail(STEP_LANDLOCK, 0);
	/* every descriptor but stdio, the socket for the receipt (closed by the
	 * exec) and the script */
	if (dup3(socket, CHANNEL, O_CLOEXEC) < 0 || (run->script >= 0 && dup2(run->script, SCRIPT) < 0))
		fail(STEP_CLOSE, 0);
	if (close_range(run->script >= 0 ? SCRIPT + 1 : SCRIPT, ~0U, 0))
		fail(STEP_CLOSE, 1);
	sigemptyset(&empty);
	sigprocmask(SIG_SETMASK, &empty, NULL);
	/* seccomp last, so that the filter may refuse all of the above */
	if (!BROKEN(run->flags, BREAK_SECCOMP))
		install(&s->filters[run->filter]);
	/* the probe under everything that the command will be under */
	begin = now_ns();
	probe(&receipt, run, s);
	receipt.took_ns += now_ns() - begin;
	if ((receipt.probes & run->probes) != run->probes) {
		errno = 0;
		fail(STEP_PROBE, run->probes & ~receipt.probes);
	}
	send_receipt(CHANNEL, &receipt);
	execve(run->shell, (char *const *)run->argv, (char *const *)run->envp);
	fail(STEP_EXEC, 0);
}

static char stack_of_shell[64 << 10] __attribute__((aligned(4096)));

/* Hands out the /proc of this pid namespace. */
static void offer_proc(int socket)
{
	struct head m = { MSG_PROC, sizeof m, 0 };
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (proc < 0)
		fail(STEP_PROC, 2);
	if (transmit(socket, &m, sizeof m, &proc, 1))
		_exit(0); /* the daemon is gone */
	close(proc);
}

/*
 * Maps what the run will touch: a page fault costs more than a system call, and
 * the spare has time.
 */
static void warm_up(const struct session *s, char *buf)
{
	uintptr_t here = (uintptr_t)command & ~(uintptr_t)4095;

	madvise(stack_of_shell + sizeof stack_of_shell - (32 << 10), 32 << 10, MADV_POPULATE_WRITE);
	madvise(buf, 12 << 10, MADV_POPULATE_WRITE);
	madvise((void *)(here - (16 << 10)), 48 << 10, MADV_POPULATE_READ);
	madvise(s->libc, s->libc_size, MADV_POPULATE_READ);
	now_ns(); /* the clock's pages */
}

void command(const struct session *s, struct ending *ending, int socket)
{
	static char buf[MSG_MAX] __attribute__((aligned(4096)));
	static struct run run;
	int fds[FDS_MAX], nfds = 0;
	sigset_t empty;

	ending_of_run = ending;
	mount_proc(s->uid == 0, s->breaks);
	offer_proc(socket);
	probe_inherited(s);
	warm_up(s, buf);
	size_t n = receive(socket, buf, fds, &nfds);
	if (n == 0)
		_exit(0); /* not needed, or the daemon is gone */
	struct reader r = { buf + sizeof(struct head), buf + n, n == 1 };
	read_run(&run, &r, fds, nfds);
	int project = open(s->project, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (project < 0)
		fail(STEP_DIR, 1);
	run.ops = r;
	for (uint32_t i = 0; i < run.nops; i++) {
		struct operation op;
		read_op(&r, &op);
		if (r.bad)
			refuse();
		if (BROKEN(run.flags, BREAK_MOUNT) && i + 1 == run.nops)
			break;
		if (apply(&op, project, -1))
			fail(STEP_PLAN, i);
	}
	/* the topmost view of it, after the plan */
	close(project);
	project = open(s->project, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (project < 0)
		fail(STEP_DIR, 2);
	/* what was mounted here could not be in a ruleset that was made outside */
	for (uint32_t i = 0; i < run.nrules; i++)
		if (landlock_allow(run.ruleset, run.rules[i].path, run.rules[i].access))
			fail(STEP_LANDLOCK_RULE, i);

	if (run.flags & RUN_TTY)
		open_terminal(&run, socket);
	if (run.flags & RUN_DOOR)
		open_door(&run, socket);
	pass_signals_on();
	/* as vfork: nothing happens here until the shell has its own memory,
	 * and no page is copied that the exec throws away; the directory stays
	 * shared beyond the exec */
	struct start start = { s, &run, project, socket };
	pid_t pid = clone(shell, stack_of_shell + sizeof stack_of_shell, CLONE_VM | CLONE_VFORK | CLONE_FS | SIGCHLD, &start);
	if (pid < 0)
		fail(STEP_FORK, 1);
	close_range(0, ~0U, 0);
	sigemptyset(&empty);
	sigprocmask(SIG_SETMASK, &empty, NULL);
	reap_until(pid);
}
