/*
 * The keeper: one process per session. It holds the session's namespaces and
 * its root, and starts each command in fresh pid, mount and ipc namespaces
 * of its own. Mechanism only: what is mounted, allowed and run comes from the
 * daemon. See keeper.h for what the two say to each other.
 *
 * It is C, and single-threaded, because what happens between clone and exec
 * may only be plain system calls. It is part of the daemon's own binary: the
 * constructor below takes over, before the Go runtime starts, when the
 * program was started under the keeper's name.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <poll.h>
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
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Signals that may be queued in a session at once. */
enum { PENDING_MAX = 4096 };

static struct session session;
/* How runs end: shared with the daemon and each init. The rest of a slot is the
 * keeper's own. */
static struct ending *endings;
static struct slot {
	pid_t init; /* 0: none, or reaped */
	bool held;  /* by the daemon, from SPARE to FREE */
} slots[RUNS_MAX];

uint32_t read_u32(struct reader *r)
{
	uint32_t v = 0;

	if (r->bad || (size_t)(r->end - r->p) < sizeof v) {
		r->bad = true;
		return 0;
	}
	memcpy(&v, r->p, sizeof v);
	r->p += sizeof v;
	return v;
}

uint64_t read_u64(struct reader *r)
{
	uint64_t v = 0;

	if (r->bad || (size_t)(r->end - r->p) < sizeof v) {
		r->bad = true;
		return 0;
	}
	memcpy(&v, r->p, sizeof v);
	r->p += sizeof v;
	return v;
}

const char *read_str(struct reader *r, uint32_t *len)
{
	uint32_t n = read_u32(r);
	const char *s = r->p;

	if (r->bad || n >= (size_t)(r->end - r->p) || s[n] != '\0') {
		r->bad = true;
		n = 0;
		s = "";
	} else {
		r->p += n + 1;
	}
	if (len)
		*len = n;
	return s;
}

int transmit(int socket, const void *message, size_t size, const int *fds, int nfds)
{
	struct iovec iov = { (void *)message, size };
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (nfds) {
		m.msg_control = control.space;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	do
		n = sendmsg(socket, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

static void tell(void *message, enum msg type, uint32_t size, const int *fds, int nfds)
{
	struct head *h = message;

	h->type = type;
	h->size = size;
	if (transmit(CHANNEL, message, size, fds, nfds))
		_exit(1); /* the daemon is gone */
}

/* Setting the session up failed: say where, and end. */
static __attribute__((noreturn)) void die(enum step step, uint32_t index)
{
	struct failed f = { .fail = { .step = step, .err = (uint32_t)errno, .index = index } };

	tell(&f, MSG_FAIL, sizeof f, NULL, 0);
	_exit(1);
}

/* A message that is cut, or does not say its own size, is given as size 1. */
size_t receive(int socket, char *buf, int *fds, int *nfds)
{
	struct iovec iov = { buf, MSG_MAX };
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.space, .msg_controllen = sizeof control.space,
	};
	ssize_t n;

	do
		n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return 0;
	*nfds = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count && *nfds < FDS_MAX; i++)
			memcpy(&fds[(*nfds)++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	struct head *h = (struct head *)buf;
	if ((size_t)n < sizeof *h || h->size != (size_t)n || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return 1;
	return (size_t)n;
}

/* The same from the daemon, where a broken message ends the keeper. */
static size_t hear(char *buf, int *fds, int *nfds)
{
	size_t n = receive(CHANNEL, buf, fds, nfds);

	if (n == 1) {
		errno = EBADMSG;
		die(STEP_MESSAGE, 0);
	}
	return n;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t n = write(fd, text, strlen(text));
	int err = errno;
	close(fd);
	errno = err;
	return n < 0 ? -1 : 0;
}

/*
 * An unprivileged process may map its own uid and gid, one each, and only
 * after giving up setgroups (user_namespaces(7)).
 */
static int map_self(uint32_t uid, uint32_t gid)
{
	char line[32];

	if (write_file("/proc/self/setgroups", "deny"))
		return -1;
	snprintf(line, sizeof line, "%u %u 1", uid, uid);
	if (write_file("/proc/self/uid_map", line))
		return -1;
	snprintf(line, sizeof line, "%u %u 1", gid, gid);
	return write_file("/proc/self/gid_map", line);
}

/* Only root of the parent namespace may map another's ids, so the daemon does it. */
static void map_by_daemon(char *buf)
{
	struct head h = { 0 };
	int fds[FDS_MAX], nfds;

	tell(&h, MSG_USERNS, sizeof h, NULL, 0);
	if (hear(buf, fds, &nfds) == 0)
		_exit(0);
	if (((struct head *)buf)->type != MSG_MAPPED) {
		errno = EBADMSG;
		die(STEP_IDMAP, 0);
	}
}

/* What no process of the session gets back, whatever it executes. */
static int give_up_privileges(void)
{
	/* the bounding set bounds what an exec may give (capabilities(7)) */
	for (int cap = 0; !BROKEN(session.breaks, BREAK_BOUNDING) && prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap))
			return -1;
	/* uid 0 in the sandbox is no more than another uid */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
		  SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
		  SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED))
		return -1;
	if (BROKEN(session.breaks, BREAK_NNP))
		return 0;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* Finds the C library's code, for the spares to warm up. */
static int find_libc(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct session *s = arg;

	(void)size;
	if (!strstr(info->dlpi_name, "libc.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			s->libc = (void *)((info->dlpi_addr + p->p_vaddr) & ~(uintptr_t)4095);
			s->libc_size = p->p_memsz;
		}
	}
	return 1;
}

int loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	int r = ioctl(fd, SIOCGIFFLAGS, &ifr);
	ifr.ifr_flags |= IFF_UP;
	if (!r)
		r = ioctl(fd, SIOCSIFFLAGS, &ifr);
	close(fd);
	return r;
}

/*
 * An abstract socket that is outside every command's Landlock domain. It is
 * bound to nobody's use: a command that reaches it is refused.
 */
int canary_socket(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "\0" ABSTRACT_CANARY };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : bind(fd, (struct sockaddr *)&a, offsetof(struct sockaddr_un, sun_path) + sizeof ABSTRACT_CANARY);
}

/* The programs are small: mapped once, they need no descriptor afterwards. */
static void map_filters(const int *fds)
{
	for (int i = 0; i < FILTERS; i++) {
		struct stat st;
		struct program *f = &session.filters[i];

		if (fstat(fds[i], &st))
			die(STEP_SECCOMP, (uint32_t)i);
		f->count = (uint16_t)((size_t)st.st_size / sizeof(struct sock_filter));
		f->insns = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fds[i], 0);
		if (f->insns == MAP_FAILED)
			die(STEP_SECCOMP, (uint32_t)i);
		close(fds[i]);
	}
}

/*
 * What is counted for the namespace is counted for who made it as well, which
 * for the system daemon is root: a session gets a share (namespaces(7),
 * /proc/sys/user). Missing files are counts that this kernel does not have.
 */
static int bound_counts(void)
{
	static const char *const bounds[][2] = {
		{ "proc/sys/user/max_inotify_instances", "16" },
		{ "proc/sys/user/max_inotify_watches", "65536" },
		{ "proc/sys/user/max_fanotify_groups", "0" },
		{ "proc/sys/user/max_user_namespaces", "0" },
	};

	for (size_t i = 0; i < COUNT(bounds); i++)
		if (write_file(bounds[i][0], bounds[i][1]) && errno != ENOENT)
			return -1;
	return 0;
}

/*
 * Builds the new root and makes it the only one. It is attached over /usr,
 * which every system has: the sources were opened before, so that what it
 * hides is not needed any more.
 */
static void build_root(struct operation *ops, uint32_t nops, int devices)
{
	int nodes[DEVICES];
	int fs, root;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		die(STEP_ROOT, 0);
	for (uint32_t i = 0; i < nops; i++)
		if (ops[i].kind == OP_BIND && open_source(&ops[i]))
			die(STEP_SOURCE, i);
	if (devices < 0 && open_devices(nodes))
		die(STEP_DEVICES, 0);

	fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "16m", 0) ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		die(STEP_ROOT, 1);
	root = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (root < 0 || move_mount(root, "", AT_FDCWD, "/usr", MOVE_MOUNT_F_EMPTY_PATH))
		die(STEP_ROOT, 2);
	close(fs);
	if (fchdir(root))
		die(STEP_ROOT, 3);
	close(root);
	/* a proc of this pid namespace: the kernel lets a user namespace mount
	 * one only where it can see one that nothing covers */
	if (mkdir("proc", 0555) ||
	    mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
		die(STEP_PROC, 0);
	if (bound_counts())
		die(STEP_PRIVILEGES, 3);
	for (uint32_t i = 0; i < nops; i++) {
		if (ops[i].kind == OP_DEV && devices < 0) {
			if (bind_devices(nodes))
				die(STEP_DEVICES, i);
		} else if (apply(&ops[i], -1, devices)) {
			die(STEP_PLAN, i);
		}
		if (ops[i].kind == OP_BIND && ops[i].source >= 0)
			close(ops[i].source);
	}
	if (syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
		die(STEP_PIVOT, 0);
}

/* Descriptors of the places that the daemon makes Landlock rules for. */
static void report(struct reader *r, uint32_t count)
{
	struct ready m = { 0 };
	int fds[FDS_MAX];

	if (count > FDS_MAX) {
		errno = E2BIG;
		die(STEP_REPORT, 0);
	}
	for (uint32_t i = 0; i < count; i++) {
		fds[i] = open(read_str(r, NULL), O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (fds[i] < 0)
			die(STEP_REPORT, i);
	}
	if (r->bad) {
		errno = EBADMSG;
		die(STEP_REPORT, count);
	}
	namespaces(m.ns);
	tell(&m, MSG_READY, sizeof m, fds, (int)count);
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

/*
 * Makes the next command's init ahead of time: its namespaces and its /proc
 * are half of what a start costs. Nothing in it depends on the run. Returns the
 * slot, or -1 with errno set.
 */
static int make_spare(int fds[2])
{
	int slot = 0, pair[2], pidfd;

	while (slot < RUNS_MAX && (slots[slot].init || slots[slot].held))
		slot++;
	if (slot == RUNS_MAX) {
		errno = EAGAIN;
		return -1;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -1;
	/* the directory's own page is left alone but for its first byte */
	memset(&endings[slot], 0, offsetof(struct ending, dir) + 1);
	unsigned long spaces = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;
	if (BROKEN(session.breaks, BREAK_PIDNS))
		spaces &= ~(unsigned long)CLONE_NEWPID;
	if (BROKEN(session.breaks, BREAK_MNTNS))
		spaces &= ~(unsigned long)CLONE_NEWNS;
	if (BROKEN(session.breaks, BREAK_IPCNS))
		spaces &= ~(unsigned long)CLONE_NEWIPC;
	long pid = syscall(SYS_clone, spaces | CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
	if (pid == 0) {
		close(pair[0]);
		command(&session, &endings[slot], pair[1]);
	}
	int err = errno;
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		errno = err;
		return -1;
	}
	slots[slot] = (struct slot){ (pid_t)pid, true };
	fds[0] = pair[0];
	fds[1] = pidfd;
	return slot;
}

/* Spares that the daemon waits for. */
static unsigned owed = 1;

/* What cannot be made now, when a command has used its processes up, is tried
 * again soon. */
static void offer_spares(void)
{
	while (owed) {
		struct head h = { 0 };
		int fds[2], slot = make_spare(fds);

		if (slot < 0)
			return;
		h.id = (uint64_t)slot;
		tell(&h, MSG_SPARE, sizeof h, fds, 2);
		close(fds[0]);
		close(fds[1]);
		owed--;
	}
}

static void reap(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) > 0)
		for (int i = 0; i < RUNS_MAX; i++)
			if (slots[i].init == pid)
				slots[i].init = 0;
}

static void obey(const struct head *h)
{
	switch (h->type) {
	case MSG_NEXT:
		owed++;
		break;
	case MSG_FREE:
		if (h->id < RUNS_MAX)
			slots[h->id].held = false;
		break;
	}
}

static void serve(char *buf, int signals)
{
	struct pollfd p[2] = { { CHANNEL, POLLIN, 0 }, { signals, POLLIN, 0 } };
	int fds[FDS_MAX], nfds = 0;

	for (;;) {
		offer_spares();
		if (poll(p, 2, owed ? 20 : -1) < 0)
			continue;
		if (p[1].revents) {
			struct signalfd_siginfo info;
			(void)!read(signals, &info, sizeof info);
			reap();
		}
		if (!p[0].revents)
			continue;
		size_t n = hear(buf, fds, &nfds);
		if (n == 0)
			_exit(0); /* the daemon is gone, and with this pid 1 all that it started */
		obey((struct head *)buf);
		for (int i = 0; i < nfds; i++)
			close(fds[i]);
	}
}

/*
 * Dies with the daemon even when stopped. It may be dead already, and getppid
 * tells nothing across a pid namespace.
 */
static void die_with_daemon(void)
{
	struct pollfd p = { CHANNEL, 0, 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
		_exit(0);
}

/* What INIT says besides the session's own fields. Strings stay in the message. */
struct init {
	uint32_t ngroups, nops, nreport;
	gid_t groups[1 << 12];
	struct operation ops[1 << 12];
};

/* The paths to report are what is left of the message. */
static bool read_init(struct reader *r, struct session *s, struct init *init)
{
	s->setting = read_u32(r);
	s->breaks = read_u32(r);
	s->uid = read_u32(r);
	s->gid = read_u32(r);
	init->ngroups = read_u32(r);
	init->nops = read_u32(r);
	init->nreport = read_u32(r);
	if (r->bad || init->ngroups > COUNT(init->groups) || init->nops > COUNT(init->ops) || init->nreport > FDS_MAX)
		return false;
	for (uint32_t i = 0; i < init->ngroups; i++)
		init->groups[i] = read_u32(r);
	s->project = strdup(read_str(r, NULL));
	s->home = strdup(read_str(r, NULL));
	for (uint32_t i = 0; i < init->nops && !r->bad; i++)
		read_op(r, &init->ops[i]);
	return !r->bad && s->project && s->home;
}

/* The process that stays: pid 1 of the session's pid namespace. */
static void keep(char *buf, void *text, size_t size, struct reader *r, struct init *init, int devices)
{
	sigset_t set;
	int signals;

	die_with_daemon();
	prctl(PR_SET_DUMPABLE, 0);
	if (give_up_privileges())
		die(STEP_PRIVILEGES, 0);
	if (sethostname("pinfold", 7))
		die(STEP_NAMESPACES, 1);
	if (loopback_up() || canary_socket())
		die(STEP_LOOPBACK, 0);
	build_root(init->ops, init->nops, devices);
	if (devices >= 0)
		close(devices);

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		die(STEP_REPORT, 1);
	report(r, init->nreport);
	munmap(text, size);
	serve(buf, signals);
}

static void become_keeper(void)
{
	static char buf[MSG_MAX] __attribute__((aligned(8)));
	static char more[MSG_MAX] __attribute__((aligned(8)));
	static struct init init;
	int fds[FDS_MAX], nfds = 0, devices = -1, pidfd = -1;
	struct head h = { 0 };

	fcntl(CHANNEL, F_SETFD, FD_CLOEXEC);
	/* what whoever started the daemon left open in it */
	if (close_range(CHANNEL + 1, ~0U, 0))
		die(STEP_CLOSE, 2);
	umask(022);
	/* what the daemon's starter ignored, as nohup does, is not ignored inside */
	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_DFL);
	size_t n = hear(buf, fds, &nfds);
	if (n == 0)
		_exit(0);
	if (((struct head *)buf)->type != MSG_INIT || nfds != FILTERS + 2) {
		errno = EBADMSG;
		die(STEP_MESSAGE, 1);
	}
	struct stat st;
	char *text = fstat(fds[FILTERS], &st) ? MAP_FAILED :
		mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fds[FILTERS], 0);
	endings = mmap(NULL, sizeof *endings * RUNS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fds[FILTERS + 1], 0);
	if (text == MAP_FAILED || endings == MAP_FAILED)
		die(STEP_MESSAGE, 2);
	close(fds[FILTERS]);
	close(fds[FILTERS + 1]);
	struct reader r = { text, text + st.st_size, false };
	if (!read_init(&r, &session, &init)) {
		errno = EBADMSG;
		die(STEP_MESSAGE, 3);
	}
	map_filters(fds);
	dl_iterate_phdr(find_libc, &session);

	bool system = session.setting == SETTING_SYSTEM;
	if (system) {
		/* groups while they may still be set; an unmapped group would
		 * make files of it unreadable and git rehash them all */
		if (setgroups(init.ngroups, init.groups) || setresgid(session.gid, session.gid, session.gid))
			die(STEP_GROUPS, 0);
		/* device nodes while they may still be made: those of the host
		 * may have any mode */
		devices = make_devices();
		if (devices < 0)
			die(STEP_DEVICES, 1);
	}
	/* what the daemon was spared of when memory is short, commands are not;
	 * the kernel keeps the least that root has set (proc(5)) */
	if (write_file("/proc/self/oom_score_adj", "200") && errno != EACCES)
		die(STEP_PRIVILEGES, 4);
	/* signals that are queued in the namespace are charged to who made it
	 * too; its bound is this process's */
	if (setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){ PENDING_MAX, PENDING_MAX }) && errno != EPERM)
		die(STEP_PRIVILEGES, 2);
	/* the user namespace while still root: it belongs to root then, and the
	 * caller's own processes can neither enter nor trace what is in it */
	if (!BROKEN(session.breaks, BREAK_USERNS) && unshare(CLONE_NEWUSER))
		die(STEP_USERNS, 0);
	if (system)
		map_by_daemon(more);
	else if (map_self(session.uid, session.gid))
		die(STEP_IDMAP, 1);
	/* the capabilities stay: uid 0 of the host is not uid 0 in here */
	if (system && (prctl(PR_SET_KEEPCAPS, 1) ||
		       (!BROKEN(session.breaks, BREAK_IDS) && setresuid(session.uid, session.uid, session.uid))))
		die(STEP_IDS, 0);
	if (getuid() != session.uid || geteuid() != session.uid || getgid() != session.gid) {
		errno = EPERM;
		die(STEP_IDS, 1);
	}
	/* the change of ids has cleared it; keep() sets it for the next process */
	die_with_daemon();
	int spaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP;
	if (BROKEN(session.breaks, BREAK_NETNS))
		spaces &= ~CLONE_NEWNET;
	if (BROKEN(session.breaks, BREAK_UTSNS))
		spaces &= ~CLONE_NEWUTS;
	if (BROKEN(session.breaks, BREAK_CGROUPNS))
		spaces &= ~CLONE_NEWCGROUP;
	if (unshare(spaces))
		die(STEP_NAMESPACES, 0);
	/* the next process is pid 1 of the new namespace; the daemon is its
	 * parent, so that it can wait for it */
	long pid = syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD, 0, &pidfd, 0, 0);
	if (pid < 0)
		die(STEP_FORK, 0);
	if (pid > 0) {
		if (BROKEN(session.breaks, BREAK_LATE))
			usleep(300000);
		tell(&h, MSG_KEEPER, sizeof h, &pidfd, 1);
		_exit(0);
	}
	keep(buf, text, (size_t)st.st_size, &r, &init, devices);
	_exit(1);
}

__attribute__((constructor)) static void pinfold_keeper(int argc, char **argv)
{
	if (argc == 1 && strcmp(argv[0], "pinfold-keeper") == 0) {
		become_keeper();
		_exit(1);
	}
}
