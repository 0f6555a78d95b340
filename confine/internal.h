/* What the three C files share. */
#ifndef PINFOLD_INTERNAL_H
#define PINFOLD_INTERNAL_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A message being read. After a read past its end every further read gives
 * zeros and empty strings, and bad stays set. */
struct reader {
	const char *p, *end;
	bool bad;
};

uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
/* The string ends with a NUL inside the message; len may be NULL. */
const char *read_str(struct reader *r, uint32_t *len);

struct operation {
	uint32_t kind, flags;
	uint64_t set, clear, arg;
	const char *a, *b;
	uint32_t b_len;
	int source; /* OP_BIND: the detached mount */
};

void read_op(struct reader *r, struct operation *op);

/* Each returns 0, or -1 with errno set. Paths of operations are followed from
 * the current directory, which is the new root. */
int open_source(struct operation *op);
int apply(const struct operation *op, int project, int devices);
int make_devices(void);
int bind_devices(const int *nodes);
int open_devices(int *nodes);
enum { DEVICES = 6 };

/* The session: set up once, before the first run. */
struct session {
	uint32_t setting, breaks, uid, gid;
	char *project, *home;
	void *libc; /* its code */
	size_t libc_size;
	struct program {
		void *insns;
		uint16_t count;
	} filters[FILTERS];
};

/* Runs in the clone, and waits on the socket for its run. */
__attribute__((noreturn)) void command(const struct session *s, struct ending *ending, int socket);

/* Receive or send one message of at most MSG_MAX bytes with descriptors; 0 and
 * -1 when the other end is gone. */
size_t receive(int socket, char *buf, int *fds, int *nfds);
int transmit(int socket, const void *message, size_t size, const int *fds, int nfds);

/* The inodes of this process's namespaces. */
void namespaces(uint64_t ns[NS_COUNT]);

int open_beneath(int dir, const char *path, uint64_t flags);

/* In the network namespace of this process. */
int loopback_up(void);
int canary_socket(void);

#endif
