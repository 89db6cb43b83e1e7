/* Small programs that stand in for those of SPEC CPU 2006 for which nothing free is at hand.
 *
 *   cc -O2 -o kernels kernels.c -lm && ./kernels lbm 12
 *
 * Each does without end what its namesake's inner loops do, on about so many MB: the first argument says
 * which, the second how many. Written from what the algorithms are known to be, not from the programs.
 *
 *   lbm       lattice-Boltzmann flow, 19 directions, two grids
 *   fdtd      electric and magnetic fields on a staggered grid         (GemsFDTD)
 *   fluid     finite volumes of five quantities, fluxes by direction   (leslie3d)
 *   weather   columns of physics over layers of dynamics               (wrf)
 *   lattice   3x3 complex matrices along the links of a 4-D lattice    (milc)
 *   speech    Gaussian mixtures scored for frame after frame           (sphinx3)
 *   events    a queue of events among modules that pass messages       (omnetpp)
 *   paths     shortest paths on a map of terrain, with a heap          (astar)
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;
static uint64_t draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}
/* What a turn wrote is kept, although nobody reads it. */
static void turn_ends(void) { __asm__ volatile("" ::: "memory"); }
static void *volatile kept;
static void *room(size_t bytes) {
    void *at = calloc(1, bytes);
    if (!at) exit(1);
    kept = at;
    return at;
}
static size_t side(size_t cells) { return (size_t)cbrt((double)cells); }

static void lbm(size_t bytes) {
    size_t n = side(bytes / (2 * 19 * 8)), cells = n * n * n;
    double *grids[2] = {room(cells * 152), room(cells * 152)};
    long step[19], at = 0;
    for (int x = -1; x <= 1; x++)
        for (int y = -1; y <= 1; y++)
            for (int z = -1; z <= 1; z++)
                if (abs(x) + abs(y) + abs(z) < 3) step[at++] = (x * (long)n + y) * (long)n + z;
    for (size_t i = 0; i < cells * 19; i++) grids[0][i] = grids[1][i] = 1.0 / 19;
    for (int turn = 0;; turn ^= 1, turn_ends()) {
        double *from = grids[turn], *to = grids[!turn];
        for (size_t c = n * n + n + 1; c + n * n + n + 1 < cells; c++) {
            double sum = 0;
            for (int d = 0; d < 19; d++) sum += from[c * 19 + d];
            for (int d = 0; d < 19; d++)
                to[(c + step[d]) * 19 + d] = from[c * 19 + d] * 0.05 + sum * (0.95 / 19);
        }
    }
}

static void fdtd(size_t bytes) {
    size_t n = side(bytes / 48), cells = n * n * n;
    double *f[6];
    for (int i = 0; i < 6; i++) f[i] = room(cells * 8);
    f[0][cells / 2] = 1;
    for (;; turn_ends()) {
        size_t next[3] = {n * n, n, 1};
        for (int half = 0; half < 2; half++)
            for (int axis = 0; axis < 3; axis++) {
                double *own = f[half * 3 + axis];
                int b = (axis + 1) % 3, c = (axis + 2) % 3;
                double *one = f[!half * 3 + c], *other = f[!half * 3 + b];
                long back = half ? 1 : -1;
                for (size_t i = n * n; i + n * n < cells; i++)
                    own[i] += 0.4 * back * ((one[i + back * (long)next[b]] - one[i])
                                          - (other[i + back * (long)next[c]] - other[i]));
            }
    }
}

static void fluid(size_t bytes) {
    size_t n = side(bytes / (11 * 8)), cells = n * n * n;
    double *q = room(cells * 40), *next = room(cells * 40), *flux = room(cells * 8);
    for (size_t i = 0; i < cells * 5; i++) q[i] = 1 + 1e-3 * (double)(i % 97);
    for (;; turn_ends()) {
        memcpy(next, q, cells * 40);
        size_t stride[3] = {1, n, n * n};
        for (int axis = 0; axis < 3; axis++)
            for (int k = 0; k < 5; k++) {
                double *from = q + k * cells, *to = next + k * cells;
                size_t s = stride[axis];
                for (size_t i = s; i + s < cells; i++) flux[i] = 0.5 * (from[i - s] + from[i]) - 0.1 * (from[i] - from[i - s]);
                for (size_t i = s; i + 2 * s < cells; i++) to[i] -= 0.1 * (flux[i + s] - flux[i]);
            }
        double *old = q;
        q = next, next = old;
    }
}

static void weather(size_t bytes) {
    size_t layers = 32, fields = 12, n = (size_t)sqrt((double)(bytes / (layers * fields * 4))), level = n * n;
    float *f = room(layers * level * fields * 4);
    for (size_t i = 0; i < layers * level * fields; i++) f[i] = 1 + (float)(draw() % 100) * 1e-3f;
#define AT(field, layer) (f + ((field) * layers + (layer)) * level)
    for (;; turn_ends()) {
        for (size_t k = 0; k < 6; k++)
            for (size_t l = 0; l < layers; l++) {
                float *u = AT(k, l), *tend = AT(k + 6, l);
                for (size_t i = n; i + n < level; i++)
                    tend[i] = 0.9f * tend[i] + 0.02f * (u[i - 1] + u[i + 1] + u[i - n] + u[i + n] - 4 * u[i]);
            }
        for (size_t i = 0; i < level; i++) {
            float rain = 0;
            for (size_t l = layers; l-- > 1;) {
                float wet = AT(3, l)[i] - 1.02f * AT(0, l)[i];
                rain = wet > 0 ? rain + wet : rain * 0.5f;
                AT(0, l)[i] += 0.01f * AT(6, l)[i] - 0.001f * rain;
                AT(3, l)[i] += 0.01f * AT(9, l)[i];
            }
        }
    }
}

typedef struct { double re, im; } Complex;
static void lattice(size_t bytes) {
    size_t sites = bytes / (4 * 9 * 16 + 3 * 16 * 2), n = (size_t)sqrt(sqrt((double)sites));
    sites = n * n * n * n;
    Complex *links = room(sites * 36 * sizeof(Complex)), *from = room(sites * 48), *to = room(sites * 48);
    for (size_t i = 0; i < sites * 36; i++) links[i].re = i % 4 == 0, links[i].im = 0.01 * (double)(i % 7);
    for (size_t i = 0; i < sites * 3; i++) from[i].re = 1;
    for (;; turn_ends()) {
        for (size_t s = 0; s < sites; s++) {
            Complex sum[3] = {{0, 0}, {0, 0}, {0, 0}};
            size_t stride = 1;
            for (int d = 0; d < 4; d++, stride *= n) {
                Complex *u = links + (s * 4 + d) * 9, *v = from + (s + stride) % sites * 3;
                for (int r = 0; r < 3; r++)
                    for (int c = 0; c < 3; c++) {
                        sum[r].re += u[r * 3 + c].re * v[c].re - u[r * 3 + c].im * v[c].im;
                        sum[r].im += u[r * 3 + c].re * v[c].im + u[r * 3 + c].im * v[c].re;
                    }
            }
            for (int r = 0; r < 3; r++) to[s * 3 + r].re = sum[r].re * 0.2, to[s * 3 + r].im = sum[r].im * 0.2;
        }
        Complex *old = from;
        from = to, to = old;
    }
}

static void speech(size_t bytes) {
    size_t dims = 39, gaussians = bytes / (dims * 8 + 16);
    float *mean = room(gaussians * dims * 4), *var = room(gaussians * dims * 4), frame[39];
    double *score = room(gaussians * 8);
    for (size_t i = 0; i < gaussians * dims; i++) mean[i] = (float)(draw() % 200) * 0.01f, var[i] = 1 + (float)(draw() % 9);
    for (;; turn_ends()) {
        for (size_t d = 0; d < dims; d++) frame[d] = (float)(draw() % 200) * 0.01f;
        double best = -1e30;
        for (size_t g = 0; g < gaussians; g++) {
            double sum = 0;
            for (size_t d = 0; d < dims && sum > best - 400; d++) {
                double apart = frame[d] - mean[g * dims + d];
                sum -= apart * apart * var[g * dims + d];
            }
            score[g] = 0.8 * score[g] + sum;
            if (sum > best) best = sum;
        }
    }
}

typedef struct Event { double when; struct Event *next; uint32_t module, kind; uint64_t load[4]; } Event;
static void events(size_t bytes) {
    size_t modules = bytes / (512 + 64), count = modules;
    uint64_t *memory = room(modules * 512);
    Event *pool = room(count * sizeof(Event)), **heap = room((count + 1) * sizeof(Event *));
    for (size_t i = 0; i < count; i++) {
        pool[i].when = (double)i, pool[i].module = (uint32_t)(draw() % modules);
        heap[i + 1] = pool + i;
    }
    for (;; turn_ends()) {
        Event *first = heap[1];
        uint64_t *mine = memory + first->module * 64;
        mine[first->kind % 64]++, mine[63] ^= first->load[0];
        first->load[draw() % 4] = mine[draw() % 64];
        first->module = (uint32_t)((first->module + 1 + draw() % 512) % modules), first->kind++;
        first->when += 1 + (double)(draw() % 100000);
        size_t hole = 1;
        for (size_t child; (child = 2 * hole) <= count; hole = child) {
            if (child < count && heap[child + 1]->when < heap[child]->when) child++;
            if (heap[child]->when >= first->when) break;
            heap[hole] = heap[child];
        }
        heap[hole] = first;
    }
}

static void paths(size_t bytes) {
    size_t n = (size_t)sqrt((double)(bytes / 20)), cells = n * n, used;
    uint8_t *terrain = room(cells);
    uint32_t *cost = room(cells * 4), *heap = room(cells * 12);
    for (size_t i = 0; i < cells; i++) terrain[i] = draw() % 5 == 0 ? 255 : (uint8_t)(1 + draw() % 9);
    for (;; turn_ends()) {
        memset(cost, 255, cells * 4);
        size_t start = draw() % cells, goal = draw() % cells;
        cost[start] = 0, heap[1] = (uint32_t)start, used = 1;
#define RANK(c) (cost[c] + (uint32_t)(labs((long)((c) % n) - (long)(goal % n)) + labs((long)((c) / n) - (long)(goal / n))))
        while (used > 0) {
            uint32_t here = heap[1], last = heap[used--];
            size_t hole = 1;
            for (size_t child; (child = 2 * hole) <= used; hole = child) {
                if (child < used && RANK(heap[child + 1]) < RANK(heap[child])) child++;
                if (RANK(heap[child]) >= RANK(last)) break;
                heap[hole] = heap[child];
            }
            heap[hole] = last;
            if (here == goal) break;
            long moves[4] = {1, -1, (long)n, -(long)n};
            for (int m = 0; m < 4; m++) {
                size_t there = (size_t)((long)here + moves[m]);
                if (there >= cells || terrain[there] == 255 || used + 2 >= cells * 3) continue;
                uint32_t price = cost[here] + terrain[there];
                if (price >= cost[there]) continue;
                cost[there] = price;
                size_t slot = ++used;
                for (; slot > 1 && RANK(heap[slot / 2]) > RANK(there); slot /= 2) heap[slot] = heap[slot / 2];
                heap[slot] = (uint32_t)there;
            }
        }
    }
}

int main(int count, char **words) {
    static const struct { const char *name; void (*run)(size_t); } all[] = {
        {"lbm", lbm}, {"fdtd", fdtd}, {"fluid", fluid}, {"weather", weather}, {"lattice", lattice},
        {"speech", speech}, {"events", events}, {"paths", paths},
    };
    size_t megabytes = count == 3 ? strtoul(words[2], NULL, 10) : 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && megabytes > 0; i++)
        if (strcmp(all[i].name, words[1]) == 0) all[i].run(megabytes << 20);
    fprintf(stderr, "kernels lbm|fdtd|fluid|weather|lattice|speech|events|paths MB\n");
    return 2;
}
