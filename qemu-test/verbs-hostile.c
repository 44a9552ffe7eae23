// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-hostile: packets that no correct peer sends, to QPs of a verbs device, while two
 * other QPs exchange messages.
 *
 *	verbs-hostile DEVICE_A GID_A DEVICE_B GID_B SECONDS SEED 3<NETNS_A 4<NETNS_B
 *
 * Host a (192.0.2.1) has the first device, and host b (192.0.2.2) the second one. The
 * attacker sends from host a with any source address: to the QPs of the good flow, whose
 * PSNs it does not know, to a connection with an SRQ of which it knows everything, to a
 * QP for datagrams, and to QP 1. It sends as many packets as the good flow does.
 *
 * The good flow must keep its share, its messages their bytes, and the kernel its memory.
 * The last line is "hostile: N packets to verbs, ...: ok" or "hostile: failed: verbs: ...".
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "verbs-ends.h"

#define SLICE_MS	500
#define LEN		4000
#define STALL_MS	60000
/* KiB that may stay in use, and that an attack may use while it lasts. */
#define MEMORY_KIB	(8 << 10)
#define PEAK_KIB	(256 << 10)
#define SETTLED_MS	100000

static __u64 rng;

static __u64 any(void)
{
	rng += 0x9e3779b97f4a7c15ull;
	__u64 out = (rng ^ (rng >> 30)) * 0xbf58476d1ce4e5b9ull;

	out = (out ^ (out >> 27)) * 0x94d049bb133111ebull;
	return out ^ (out >> 31);
}

static __u32 below(__u32 bound)
{
	return (any() >> 11) % bound;
}

#define fail(...)							\
	do { printf("hostile: failed: verbs: " __VA_ARGS__); puts(""); exit(1); } while (0)

/* A host: its device, and its GID. */
static struct host {
	struct ibv_context *device;
	union ibv_gid gid;
	int index;
} hosts[2];

static void at(struct host *own, struct host *peer)
{
	device = own->device;
	gid_index = own->index;
	own_gid = peer->gid;
}

/* Pairs of QPs: the good flow, a victim with an SRQ, and a victim for datagrams. */
static struct end flow[2], victim[2], datagrams[2];

static void make_pair(struct end *pair, enum ibv_qp_type type, int shared)
{
	with_srq = shared;
	at(&hosts[0], &hosts[1]);
	make_end(&pair[0], type, 0);
	at(&hosts[1], &hosts[0]);
	make_end(&pair[1], type, 0);
	with_srq = 0;
}

static void connect_pair(struct end *pair)
{
	int i;

	for (i = 0; i < 2; i++)
		to_init(&pair[i]);
	for (i = 0; i < 2; i++) {
		at(&hosts[i], &hosts[!i]);
		to_rtr(&pair[i], pair[!i].qp->qp_num);
		to_rts(&pair[i], 7);
	}
}

/* Receives for the victims; one that an attack has ended is connected again. */
static void revive(void)
{
	struct ibv_sge one;
	struct ibv_recv_wr receive = { .sg_list = &one, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	if (state(&victim[1]) != IBV_QPS_RTS || state(&victim[0]) != IBV_QPS_RTS) {
		expect(!modify(&victim[0], IBV_QPS_RESET) && !modify(&victim[1], IBV_QPS_RESET),
		       "RESET");
		connect_pair(victim);
	}
	while (ibv_poll_cq(victim[1].receives, 1, &wc) > 0 ||
	       ibv_poll_cq(datagrams[1].receives, 1, &wc) > 0)
		;
	one = sge(&victim[1], 0, 4096);
	while (!ibv_post_srq_recv(victim[1].srq, &receive, &bad))
		;
	one = sge(&datagrams[1], 0, 2048);
	while (!ibv_post_recv(datagrams[1].qp, &receive, &bad))
		;
}

static int over, attacking;
static unsigned long messages, packets;

static void one_way(struct end *from, struct end *to, __u32 seed)
{
	struct ibv_sge one = sge(from, 0, LEN);
	struct ibv_send_wr send = wr(1, IBV_WR_SEND, &one, 1);
	struct end *both[] = { from, to };
	struct ibv_wc wc;
	int i;

	memset(from->memory, seed, LEN);
	receive(to, 2, 0, LEN);
	must_post(from, &send);
	for (i = 0; i < 2; i++) {
		if (!poll_for(i ? to->receives : from->sends, &wc, STALL_MS))
			fail("the good flow stands still");
		if (wc.status != IBV_WC_SUCCESS)
			fail("the good flow: %s", ibv_wc_status_str(wc.status));
	}
	for (i = 0; i < LEN; i++)
		if (both[1]->memory[i] != (__u8)seed)
			fail("byte %d of a message is wrong", i);
}

static void *run_flow(void *unused)
{
	__u32 seed = 0;

	(void)unused;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		one_way(&flow[0], &flow[1], ++seed);
		one_way(&flow[1], &flow[0], ++seed);
		__atomic_fetch_add(&messages, 2, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* A packet from the IPv4 header on. */
static __u8 packet[4400];
static int raw = -1;

static __u32 crc_of(__u32 crc, const __u8 *bytes, __u32 len)
{
	int bit;

	while (len--) {
		crc ^= *bytes++;
		for (bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

static void put16(__u8 *to, __u16 value) { value = htons(value); memcpy(to, &value, 2); }
static void put32(__u8 *to, __u32 value) { value = htonl(value); memcpy(to, &value, 4); }

/* The ICRC of a packet of so many bytes before it. */
static __u32 icrc(__u32 len)
{
	__u8 head[40];

	memcpy(head, packet, sizeof(head));
	head[1] = 0xff;
	head[8] = 0xff;
	memset(&head[10], 0xff, 2);
	memset(&head[26], 0xff, 2);
	head[32] = 0xff;
	return ~crc_of(crc_of(0xdebb20e3, head, sizeof(head)), packet + 40, len - 40);
}

/* Sends what is behind the UDP header, of @len bytes; with an ICRC if there is room. */
static void emit(__u32 source, __u32 len, int is_good)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(0xc0000202) } };
	__u32 sum, whole = 28 + len;

	memset(packet, 0, 28);
	packet[0] = 0x45;
	put16(packet + 2, whole);
	put16(packet + 4, 1 + below(65535));
	packet[6] = 0x40;
	packet[8] = 64;
	packet[9] = IPPROTO_UDP;
	put32(packet + 12, source);
	put32(packet + 16, 0xc0000202);
	put16(packet + 20, 0xc000 + below(0x3fff));
	put16(packet + 22, 4791);
	put16(packet + 24, 8 + len);
	if (len >= 16) {
		sum = icrc(whole - 4) + (is_good ? 0 : 1 + below(255));
		sum = htole32(sum);
		memcpy(packet + whole - 4, &sum, 4);
	}
	if (sendto(raw, packet, whole, 0, (void *)&to, sizeof(to)) > 0)
		__atomic_fetch_add(&packets, 1, __ATOMIC_RELAXED);
}

/* A BTH; returns where the next header begins. */
static __u8 *bth(__u8 opcode, __u32 qpn, __u32 psn, __u32 len)
{
	__u8 *at = packet + 28;

	memset(at, 0, 12);
	at[0] = opcode;
	at[1] = (-len & 3) << 4 | (below(4) ? 0x40 : below(256) & 0xcf);
	put16(at + 2, below(16) ? 0xffff : below(65536));
	put32(at + 4, qpn & 0xffffff);
	put32(at + 8, (psn & 0xffffff) | (__u32)below(2) << 31);
	return at + 12;
}

static void random_bytes(__u8 *to, __u32 len)
{
	while (len--)
		*to++ = any();
}

#define PEER	0xc0000201
#define OTHER	0xc000024d

static void garbage(void)
{
	__u32 len = below(1400);

	random_bytes(packet + 28, len);
	emit(below(2) ? PEER : OTHER, len, below(2));
}

/* Attacks the good flow, of which the attacker knows the QPNs. */
static void at_the_flow(void)
{
	__u32 len = below(1024), is_peer = below(2);
	__u8 *at = bth(below(0x20), flow[1].qp->qp_num, any(), len);

	random_bytes(at, len + 32);
	emit(is_peer ? PEER : OTHER, 12 + len + (-len & 3) + 4, !is_peer);
}

/* Attacks the connection with the SRQ, from the address of its peer. */
static void at_the_connection(void)
{
	__u32 len = below(1100);
	__u32 psn = below(4) ? 0x123456 + below(12) - 2 : any();
	__u8 *at = bth(below(8) ? below(0x18) : below(256), victim[1].qp->qp_num, psn, len);

	random_bytes(at, len + 32);
	/* A RETH with an address and a key that exist, and a length. */
	if (below(2)) {
		__u64 addr = htobe64((__u64)(unsigned long)victim[1].memory + below(REGION));

		memcpy(at, &addr, 8);
		put32(at + 8, below(4) ? victim[1].mr->rkey : any());
		put32(at + 12, below(4) ? len - 16 : any());
	}
	emit(PEER, 12 + len + (-len & 3) + 4, 1);
}

static void at_datagrams(void)
{
	__u32 len = 8 + below(1100);
	__u8 *at = bth(below(8) ? 0x64 + below(2) : below(256), datagrams[1].qp->qp_num, any(),
		       len);

	random_bytes(at, len + 32);
	put32(at, below(2) ? 0x1234 : any());
	put32(at + 4, below(4) ? any() & 0xffffff : below(3));
	emit(below(2) ? PEER : OTHER, 12 + len + (-len & 3) + 4, 1);
}

/* MADs: known classes and others, any method, also truncated, and too long. */
static void at_qp1(void)
{
	static const __u8 classes[] = { 0x01, 0x03, 0x04, 0x06, 0x07, 0x08, 0x09, 0x30, 0x81 };
	__u32 len = 8 + (below(2) ? 256 : below(300));
	__u8 *at = bth(0x64, 1, any(), len);
	__u8 *mad = at + 8;

	random_bytes(at, len + 32);
	put32(at, below(16) ? 0x80010000 : any());
	put32(at + 4, below(4) ? 1 : any() & 0xffffff);
	mad[0] = below(8) ? 1 : any();
	mad[1] = below(8) ? classes[below(sizeof(classes))] : any();
	mad[2] = below(8) ? 1 + below(3) : any();
	mad[3] = below(8) ? below(0x20) | (below(2) << 7) : any();
	if (mad[1] == 7) {
		mad[2] = 2;
		mad[3] = 3;
		put16(mad + 16, 0x10 + below(12));
	} else {
		put16(mad + 16, below(0x40));
	}
	emit(below(2) ? PEER : OTHER, 12 + len + (-len & 3) + 4, 1);
}

static const struct attack {
	const char *name;
	void (*send)(void);
} attacks[] = {
	{ "garbage", garbage },
	{ "packets to the good flow", at_the_flow },
	{ "packets to a connection with an SRQ", at_the_connection },
	{ "datagrams", at_datagrams },
	{ "MADs", at_qp1 },
};

#define ATTACKS	(sizeof(attacks) / sizeof(attacks[0]))

static unsigned int current;
static double usual_rate;

/* Sends, while an attack is on, as many packets as the flow usually does. */
static void *attack(void *unused)
{
	long long begin = now();
	unsigned long sent = 0;

	(void)unused;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		if (!__atomic_load_n(&attacking, __ATOMIC_ACQUIRE)) {
			pause_ms(2);
			begin = now();
			sent = 0;
			continue;
		}
		if (sent > 2 * usual_rate * (now() - begin) / 1000) {
			pause_ms(1);
			continue;
		}
		attacks[current].send();
		sent++;
	}
	return NULL;
}

static unsigned long slice(int attacks_now)
{
	unsigned long before;

	__atomic_store_n(&attacking, attacks_now, __ATOMIC_RELEASE);
	pause_ms(50);
	before = __atomic_load_n(&messages, __ATOMIC_RELAXED);
	pause_ms(SLICE_MS);
	return __atomic_load_n(&messages, __ATOMIC_RELAXED) - before;
}

/* Gives back freed objects that slabs and the quarantine of KASAN keep. */
static void shrink(void)
{
	char path[320];
	DIR *caches = opendir("/sys/kernel/slab");
	struct dirent *cache;
	int fd;

	while (caches && (cache = readdir(caches))) {
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", cache->d_name);
		fd = open(path, O_WRONLY);
		if (fd < 0)
			continue;
		/* A cache that is not shrunk is measured as it is. */
		if (write(fd, "1", 1) < 0)
			errno = 0;
		close(fd);
	}
	if (caches)
		closedir(caches);
}

/* Slabs that are not given back, and per-CPU memory, in KiB. */
static long kernel_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	long sum = 0, value;
	char line[128];

	expect(file, "/proc/meminfo");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "SUnreclaim: %ld", &value) == 1 ||
		    sscanf(line, "Percpu: %ld", &value) == 1)
			sum += value;
	fclose(file);
	return sum;
}

static void open_host(struct host *host, int netns, const char *name, const char *index)
{
	expect(!setns(netns, CLONE_NEWNET), "setns: %s", strerror(errno));
	gid_index = atoi(index);
	host->index = gid_index;
	open_device(name);
	host->device = device;
	host->gid = own_gid;
}

static double phase(unsigned int which, long long ms, double goal, long memory)
{
	long long until = now() + ms;
	unsigned long with = 0, without = 0, before = packets;
	unsigned int pairs = 0;
	double share;

	current = which;
	/* A machine with other load gets more time. */
	while (now() < until || (pairs < 12 && with < goal * without)) {
		revive();
		with += slice(1);
		without += slice(0);
		pairs++;
		if (kernel_memory() - memory > PEAK_KIB)
			fail("%s: %ld KiB of memory", attacks[which].name,
			     kernel_memory() - memory);
	}
	share = without ? (double)with / without : 0;
	printf("%s: %lu packets, good flow at %.2f\n", attacks[which].name, packets - before,
	       share);
	fflush(stdout);
	if (share < goal)
		fail("%s: the good flow at %.2f of its rate", attacks[which].name, share);
	return share;
}

int main(int argc, char **argv)
{
	long long ms, settled;
	double goal, least = 2, share;
	pthread_t threads[2];
	struct utsname name;
	long memory, grown;
	unsigned int i;

	if (argc != 7)
		errx(2, "usage: %s DEVICE_A GID_A DEVICE_B GID_B SECONDS SEED 3<A 4<B", argv[0]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	expect(!uname(&name), "uname");
	goal = strstr(name.release, "sanitize") ? 0.3 : 0.5;
	rng = strtoull(argv[6], NULL, 0);
	open_host(&hosts[0], 3, argv[1], argv[2]);
	raw = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	expect(raw >= 0, "socket: %s", strerror(errno));
	open_host(&hosts[1], 4, argv[3], argv[4]);
	make_pair(flow, IBV_QPT_RC, 0);
	make_pair(victim, IBV_QPT_RC, 1);
	make_pair(datagrams, IBV_QPT_UD, 0);
	connect_pair(flow);
	connect_pair(victim);
	connect_pair(datagrams);
	expect(!pthread_create(&threads[0], NULL, run_flow, NULL), "a thread");
	slice(0);
	usual_rate = (slice(0) + slice(0)) * 1000.0 / (2 * SLICE_MS);
	if (!usual_rate)
		fail("there is no good flow");
	printf("good flow: %.0f messages/s\n", usual_rate);
	shrink();
	memory = kernel_memory();
	expect(!pthread_create(&threads[1], NULL, attack, NULL), "a thread");
	ms = atoi(argv[5]) * 1000ll / ATTACKS;
	for (i = 0; i < ATTACKS; i++) {
		share = phase(i, ms, goal, memory);
		least = share < least ? share : least;
	}
	settled = now() + SETTLED_MS;
	for (;;) {
		shrink();
		grown = kernel_memory() - memory;
		if (grown <= MEMORY_KIB || now() > settled)
			break;
		pause_ms(6000);
	}
	if (grown > MEMORY_KIB)
		fail("%ld KiB of memory have stayed", grown);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("hostile: %lu packets to verbs, good flow at %.2f of its rate, memory %+ld KiB\n",
	       packets, least, grown);
	return 0;
}
