/* The operations of the mount plan: one function each, no choice of its own. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void read_op(struct reader *r, struct operation *op)
{
	op->kind = read_u32(r);
	op->flags = read_u32(r);
	op->set = read_u64(r);
	op->clear = read_u64(r);
	op->arg = read_u64(r);
	op->a = read_str(r, NULL);
	op->b = read_str(r, &op->b_len);
	op->source = -1;
	if (op->a[0] != '/' && !(op->flags & OPF_PROJECT))
		r->bad = true;
}

/* "/usr" as seen from the current directory, which is the new root. */
static const char *rel(const char *path)
{
	while (*path == '/')
		path++;
	return *path ? path : ".";
}

int open_beneath(int dir, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static int set_attr(int fd, const char *path, unsigned flags, uint64_t set, uint64_t clear)
{
	struct mount_attr attr = { .attr_set = set, .attr_clr = clear };

	if (!set && !clear)
		return 0;
	return mount_setattr(fd, path, flags, &attr, sizeof attr);
}

int open_source(struct operation *op)
{
	/* the daemon has followed every link: one that is there now was put
	 * there meanwhile */
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	int at = (int)syscall(SYS_openat2, AT_FDCWD, op->b, &how, sizeof how);

	if (at < 0)
		return -1;
	/* with all that is mounted beneath: a new user namespace may not take
	 * a tree apart */
	op->source = open_tree(at, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	int err = errno;
	close(at);
	errno = err;
	if (op->source < 0)
		return -1;
	return set_attr(op->source, "", AT_EMPTY_PATH | AT_RECURSIVE, op->set, op->clear);
}

/*
 * Makes a place a mount point of its own, with its own attributes; what is
 * mounted there is the place itself, or another one. The place is followed once,
 * by descriptor, so that a symlink put there meanwhile leads nowhere.
 */
static int rebind(const struct operation *op, int project)
{
	int at, tree, r = -1;

	if (op->flags & OPF_PROJECT)
		at = open_beneath(project, op->a, O_PATH);
	else
		at = open(rel(op->a), O_PATH | O_CLOEXEC | O_NOFOLLOW);
	if (at < 0)
		return op->flags & OPF_OPTIONAL && (errno == ENOENT || errno == ENOTDIR) ? 0 : -1;
	if (op->b_len)
		tree = open_tree(AT_FDCWD, rel(op->b), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	else
		tree = open_tree(at, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (tree >= 0 && set_attr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, op->set, op->clear) == 0)
		r = move_mount(tree, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	int err = errno;
	if (tree >= 0)
		close(tree);
	close(at);
	errno = err;
	return r;
}

static int make_file(const struct operation *op)
{
	int fd = open(rel(op->a), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return -1;
	ssize_t n = write(fd, op->b, op->b_len);
	int r = n == (ssize_t)op->b_len ? fchmod(fd, (mode_t)op->arg) : -1;
	int err = n >= 0 && r ? EIO : errno;
	close(fd);
	errno = err;
	return r;
}

static int mount_devpts(const char *path)
{
	/* gid= would need group 5 mapped */
	return mount("devpts", path, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
}

int apply(const struct operation *op, int project, int devices)
{
	const char *path = rel(op->a);

	switch (op->kind) {
	case OP_DIR:
		return mkdir(path, (mode_t)op->arg) || chmod(path, (mode_t)op->arg) ? -1 : 0;
	case OP_LINK:
		return symlink(op->b, path);
	case OP_FILE:
		return make_file(op);
	case OP_BIND:
		return move_mount(op->source, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
	case OP_TMPFS:
		/* MS_* and MOUNT_ATTR_* have the same values for these flags */
		return mount("tmpfs", path, "tmpfs", op->set & (MS_NOSUID | MS_NODEV | MS_NOEXEC), op->b);
	case OP_DEV:
		return move_mount(devices, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
	case OP_DEVPTS:
		return mount_devpts(path);
	case OP_ATTR:
		return set_attr(AT_FDCWD, path, op->flags & OPF_TREE ? AT_RECURSIVE : 0, op->set, op->clear);
	case OP_REBIND:
		return rebind(op, project);
	case OP_MODE:
		return chmod(path, (mode_t)op->arg);
	default:
		errno = EBADMSG;
		return -1;
	}
}

static const struct {
	const char *name;
	unsigned major, minor;
} nodes_of_dev[DEVICES] = {
	{ "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 },
	{ "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};

/* A detached tmpfs with what /dev has besides the nodes. */
static int empty_dev(void)
{
	static const char *const links[][2] = {
		{ "/proc/self/fd", "fd" }, { "fd/0", "stdin" }, { "fd/1", "stdout" },
		{ "fd/2", "stderr" }, { "pts/ptmx", "ptmx" },
	};
	int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), dev = -1;

	if (fs < 0)
		return -1;
	if (fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		dev = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	close(fs);
	if (dev < 0)
		return -1;
	for (size_t i = 0; i < COUNT(links); i++)
		if (symlinkat(links[i][0], dev, links[i][1]))
			return -1;
	if (mkdirat(dev, "pts", 0755) || mkdirat(dev, "shm", 0755))
		return -1;
	return dev;
}

int make_devices(void)
{
	int dev = empty_dev();
	mode_t mask = umask(0);

	for (int i = 0; dev >= 0 && i < DEVICES; i++)
		if (mknodat(dev, nodes_of_dev[i].name, S_IFCHR | 0666,
			    makedev(nodes_of_dev[i].major, nodes_of_dev[i].minor)))
			return -1;
	umask(mask);
	return dev;
}

/* Without privilege there is no mknod: the host's nodes are bound. */
int open_devices(int *nodes)
{
	char path[32];

	for (int i = 0; i < DEVICES; i++) {
		snprintf(path, sizeof path, "/dev/%s", nodes_of_dev[i].name);
		nodes[i] = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (nodes[i] < 0 || set_attr(nodes[i], "", AT_EMPTY_PATH,
					     MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0))
			return -1;
	}
	return 0;
}

int bind_devices(const int *nodes)
{
	char path[32];
	int dev = empty_dev();

	if (dev < 0 || move_mount(dev, "", AT_FDCWD, "dev", MOVE_MOUNT_F_EMPTY_PATH))
		return -1;
	for (int i = 0; i < DEVICES; i++) {
		int fd = openat(dev, nodes_of_dev[i].name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
		if (fd < 0)
			return -1;
		close(fd);
		snprintf(path, sizeof path, "dev/%s", nodes_of_dev[i].name);
		if (move_mount(nodes[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH))
			return -1;
		close(nodes[i]);
	}
	close(dev);
	return 0;
}
