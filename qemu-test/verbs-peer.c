// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-peer: the other end of an RC QP, for tests that need more of a verbs
 * device than ibv_rc_pingpong.  It executes commands from TCP.
 *
 *	verbs-peer DEVICE GID_INDEX MTU
 *
 * Listens at TCP port 18515 for one client.  The two exchange
 *
 *	QPN PSN GID ADDRESS KEY		(hexadecimal)
 *
 * of their QPs and their memory of REGION bytes.  Then each line is a command,
 * and the answer is one line: "ok" with the results, or the error.
 *
 *	fill AT LEN SEED	writes a pattern into the own memory
 *	check AT LEN SEED	looks whether it is there
 *	put AT NUMBER		writes a word into the own memory
 *	get AT			tells the word that is there
 *	write AT TO LEN		writes to the client's memory
 *	writeimm AT TO LEN IMM
 *	read AT FROM LEN	reads from it
 *	send AT LEN
 *	sendimm AT LEN IMM
 *	add AT TO NUMBER	adds atomically to the client's memory; what was
 *				there before is put AT, and told
 *	swap AT TO IF NUMBER	NUMBER takes the place of IF
 *	recv AT LEN		posts a receive
 *	wait			until the oldest receive is complete: tells its
 *				length and its immediate data
 *
 * A work request that fails is answered with "status NUMBER TEXT".
 */

#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <infiniband/verbs.h>
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT	18515
#define REGION	(4u << 20)
#define SECONDS	60

static struct ibv_context *device;
static struct ibv_cq *sends, *receives;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static __u8 *memory;

/* The client's memory. */
static __u64 their_addr;
static __u32 their_key;

static __u8 pattern(__u32 seed, __u32 i)
{
	return seed + i * 7 + (i >> 8) * 13;
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **entry;

	for (entry = list; entry && *entry; entry++)
		if (!strcmp(ibv_get_device_name(*entry), name))
			device = ibv_open_device(*entry);
	if (!device)
		errx(1, "no device %s", name);
}

static void make_qp(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = access,
	};
	struct ibv_pd *pd = ibv_alloc_pd(device);

	sends = ibv_create_cq(device, 16, NULL, NULL, 0);
	receives = ibv_create_cq(device, 16, NULL, NULL, 0);
	memory = aligned_alloc(4096, REGION);
	if (!pd || !sends || !receives || !memory)
		errx(1, "no PD, CQ or memory");
	memset(memory, 0, REGION);
	mr = ibv_reg_mr(pd, memory, REGION, access);
	init.send_cq = sends;
	init.recv_cq = receives;
	qp = ibv_create_qp(pd, &init);
	if (!mr || !qp)
		err(1, "no region or QP");
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			  IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		err(1, "INIT");
}

static void connect_qp(__u32 qpn, __u32 psn, const union ibv_gid *gid,
		       int gid_index, int mtu, __u32 own_psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = qpn,
		.rq_psn = psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.grh = {
				.dgid = *gid,
				.sgid_index = gid_index,
				.hop_limit = 64,
			},
			.port_num = 1,
		},
	};

	for (; mtu > 256; mtu /= 2)
		attr.path_mtu++;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		err(1, "RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = own_psn,
		.max_rd_atomic = 16,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			  IBV_QP_MAX_QP_RD_ATOMIC))
		err(1, "RTS");
}

/* Waits for a completion; false if none comes. */
static int completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	time_t end = time(NULL) + SECONDS;

	while (time(NULL) <= end) {
		if (ibv_poll_cq(cq, 1, wc) > 0)
			return 1;
		usleep(100);
	}
	return 0;
}

static int within(__u64 at, __u64 len)
{
	return at <= REGION && len <= REGION - at;
}

/* Posts a work request, and prints how it ended. Returns whether it succeeded. */
static int transmit(struct ibv_send_wr *wr, __u64 at, __u32 len, FILE *out)
{
	struct ibv_sge sge = {
		.addr = (__u64)memory + at,
		.length = len,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (!within(at, len)) {
		fprintf(out, "not in the memory\n");
		return 0;
	}
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(qp, wr, &bad)) {
		fprintf(out, "not posted\n");
		return 0;
	}
	if (!completion(sends, &wc)) {
		fprintf(out, "no completion\n");
		return 0;
	}
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(out, "status %d %s\n", wc.status,
			ibv_wc_status_str(wc.status));
		return 0;
	}
	return 1;
}

static int rdma(enum ibv_wr_opcode opcode, __u64 at, __u64 to,
		__u32 len, __u32 imm, FILE *out)
{
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.imm_data = htonl(imm),
		.wr.rdma = {
			.remote_addr = their_addr + to,
			.rkey = their_key,
		},
	};

	return transmit(&wr, at, len, out);
}

static int atomic(enum ibv_wr_opcode opcode, __u64 at, __u64 to,
		  __u64 compare, __u64 swap_add, FILE *out)
{
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.wr.atomic = {
			.remote_addr = their_addr + to,
			.rkey = their_key,
			.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ?
				       swap_add : compare,
			.swap = swap_add,
		},
	};
	__u64 found;

	if (!transmit(&wr, at, sizeof(found), out))
		return 0;
	memcpy(&found, memory + at, sizeof(found));
	fprintf(out, "ok %llx\n", found);
	return 1;
}

static void receive(__u64 at, __u32 len, FILE *out)
{
	struct ibv_sge sge = {
		.addr = (__u64)memory + at,
		.length = len,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (!within(at, len) || ibv_post_recv(qp, &wr, &bad))
		fprintf(out, "not posted\n");
	else
		fprintf(out, "ok\n");
}

static void wait_received(FILE *out)
{
	struct ibv_wc wc;

	if (!completion(receives, &wc))
		fprintf(out, "no completion\n");
	else if (wc.status != IBV_WC_SUCCESS)
		fprintf(out, "status %d %s\n", wc.status,
			ibv_wc_status_str(wc.status));
	else if (wc.wc_flags & IBV_WC_WITH_IMM)
		fprintf(out, "ok %x %x\n", wc.byte_len, ntohl(wc.imm_data));
	else
		fprintf(out, "ok %x\n", wc.byte_len);
}

static void fill(__u64 at, __u32 len, __u32 seed, FILE *out)
{
	__u32 i;

	if (!within(at, len)) {
		fprintf(out, "not in the memory\n");
		return;
	}
	for (i = 0; i < len; i++)
		memory[at + i] = pattern(seed, i);
	fprintf(out, "ok\n");
}

static void check(__u64 at, __u32 len, __u32 seed, FILE *out)
{
	__u32 i;

	if (!within(at, len)) {
		fprintf(out, "not in the memory\n");
		return;
	}
	for (i = 0; i < len && memory[at + i] == pattern(seed, i); i++)
		;
	if (i < len)
		fprintf(out, "byte %x is %02x instead of %02x\n", i,
			memory[at + i], pattern(seed, i));
	else
		fprintf(out, "ok\n");
}

static void put(__u64 at, __u64 number, FILE *out)
{
	if (!within(at, sizeof(number))) {
		fprintf(out, "not in the memory\n");
		return;
	}
	memcpy(memory + at, &number, sizeof(number));
	fprintf(out, "ok\n");
}

static void get(__u64 at, FILE *out)
{
	__u64 number;

	if (!within(at, sizeof(number))) {
		fprintf(out, "not in the memory\n");
		return;
	}
	memcpy(&number, memory + at, sizeof(number));
	fprintf(out, "ok %llx\n", number);
}

/* Executes the command in a line, and prints the answer. */
static void execute(const char *line, FILE *out)
{
	__u64 a[4] = { 0 };
	char word[16];
	int n;

	n = sscanf(line, "%15s %llx %llx %llx %llx",
		   word, &a[0], &a[1], &a[2], &a[3]);
	if (n < 1) {
		fprintf(out, "no command\n");
	} else if (!strcmp(word, "fill")) {
		fill(a[0], a[1], a[2], out);
	} else if (!strcmp(word, "check")) {
		check(a[0], a[1], a[2], out);
	} else if (!strcmp(word, "put")) {
		put(a[0], a[1], out);
	} else if (!strcmp(word, "get")) {
		get(a[0], out);
	} else if (!strcmp(word, "write")) {
		if (rdma(IBV_WR_RDMA_WRITE, a[0], a[1], a[2], 0, out))
			fprintf(out, "ok\n");
	} else if (!strcmp(word, "writeimm")) {
		if (rdma(IBV_WR_RDMA_WRITE_WITH_IMM, a[0], a[1], a[2], a[3], out))
			fprintf(out, "ok\n");
	} else if (!strcmp(word, "read")) {
		if (rdma(IBV_WR_RDMA_READ, a[0], a[1], a[2], 0, out))
			fprintf(out, "ok\n");
	} else if (!strcmp(word, "send")) {
		if (rdma(IBV_WR_SEND, a[0], 0, a[1], 0, out))
			fprintf(out, "ok\n");
	} else if (!strcmp(word, "sendimm")) {
		if (rdma(IBV_WR_SEND_WITH_IMM, a[0], 0, a[1], a[2], out))
			fprintf(out, "ok\n");
	} else if (!strcmp(word, "add")) {
		atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a[0], a[1], 0, a[2], out);
	} else if (!strcmp(word, "swap")) {
		atomic(IBV_WR_ATOMIC_CMP_AND_SWP, a[0], a[1], a[2], a[3], out);
	} else if (!strcmp(word, "recv")) {
		receive(a[0], a[1], out);
	} else if (!strcmp(word, "wait")) {
		wait_received(out);
	} else {
		fprintf(out, "no command %s\n", word);
	}
}

/* The descriptor of the one client. */
static int client(void)
{
	struct sockaddr_in6 addr = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(PORT),
	};
	int listener = socket(AF_INET6, SOCK_STREAM, 0), yes = 1, fd;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(listener, 1))
		err(1, "port %d", PORT);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		err(1, "nobody connects");
	close(listener);
	return fd;
}

static void say_gid(const union ibv_gid *gid, FILE *out)
{
	unsigned int i;

	for (i = 0; i < sizeof(gid->raw); i++)
		fprintf(out, "%02x", gid->raw[i]);
}

static int read_gid(const char *text, union ibv_gid *gid)
{
	unsigned int i;

	for (i = 0; i < sizeof(gid->raw); i++)
		if (sscanf(text + 2 * i, "%2hhx", &gid->raw[i]) != 1)
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	__u32 qpn, psn, own_psn = (__u32)getpid() & 0xffffff;
	char line[256], hex[33];
	union ibv_gid gid;
	FILE *in, *out;
	int fd;

	if (argc != 4)
		errx(2, "usage: verbs-peer DEVICE GID_INDEX MTU");
	open_device(argv[1]);
	make_qp();
	fd = client();
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	if (!in || !out)
		err(1, "no stream");
	setvbuf(out, NULL, _IOLBF, BUFSIZ);
	if (!fgets(line, sizeof(line), in) ||
	    sscanf(line, "%x %x %32s %llx %x",
		   &qpn, &psn, hex, &their_addr, &their_key) != 5 ||
	    !read_gid(hex, &gid))
		errx(1, "no QP");
	connect_qp(qpn, psn, &gid, atoi(argv[2]), atoi(argv[3]), own_psn);
	if (ibv_query_gid(device, 1, atoi(argv[2]), &gid))
		err(1, "GID %s", argv[2]);
	fprintf(out, "%x %x ", qp->qp_num, own_psn);
	say_gid(&gid, out);
	fprintf(out, " %llx %x\n", (unsigned long long)memory, mr->rkey);
	while (fgets(line, sizeof(line), in)) {
		printf("%s", line);
		execute(line, out);
	}
	return 0;
}
