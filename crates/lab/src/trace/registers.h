/* Which general registers an x86-64 instruction takes its address from, and where what it puts into them comes from.
 *
 * - Bytes are decoded as far as that needs: prefixes, opcode, ModRM, SIB (Intel's manual, volume 2).
 * - Registers are 0 to 15, rsp is 4. NO_REGISTER stands for none, and for what depends on no register.
 * - What is not known here puts nothing into a register. Vector registers hold no addresses.
 */
enum { NO_REGISTER = 16, RAX = 0, RCX = 1, RDX = 2, RSP = 4, RBP = 5, RSI = 6, RDI = 7, R11 = 11 };

/* A register gets what another one has, or (merges) what is newer of both. */
typedef struct { uint8_t to, from; bool merges; } Copy;

/* Base and index of the access, the register that is loaded, what happens to others. */
typedef struct { bool accesses; uint8_t base, index, loads, count; Copy copies[3]; } Effect;

static void copy(Effect *e, uint8_t to, uint8_t from, bool merges) {
    if (to != NO_REGISTER) e->copies[e->count++] = (Copy){to, from, merges};
}

/* Opcodes of the first two maps that have a ModRM byte. */
static bool has_modrm(unsigned map, uint8_t op) {
    if (map > 1) return true;
    if (map == 1)
        return !(op == 0x05 || op == 0x06 || op == 0x08 || op == 0x09 || op == 0x0b || (op >= 0x30 && op <= 0x37) ||
                 op == 0x77 || (op >= 0x80 && op <= 0x8f) || (op >= 0xa0 && op <= 0xa2) || (op >= 0xa8 && op <= 0xaa) ||
                 (op >= 0xc8 && op <= 0xcf));
    return (op < 0x40 && (op & 4) == 0) || op == 0x63 || op == 0x69 || op == 0x6b || (op >= 0x80 && op <= 0x8f) ||
           op == 0xc0 || op == 0xc1 || op == 0xc6 || op == 0xc7 || (op >= 0xd0 && op <= 0xd3) ||
           (op >= 0xd8 && op <= 0xdf) || op == 0xf6 || op == 0xf7 || op >= 0xfe;
}

/* What the instruction does beside its access; reg and rm are its registers, rm is none if it is memory. */
static void classify(Effect *e, unsigned map, uint8_t op, uint8_t reg, uint8_t rm, uint8_t low) {
    bool memory = rm == NO_REGISTER;
    unsigned digit = reg & 7;
    if (map == 0 && op < 0x40 && (op & 4) == 0) { /* add, or, adc, sbb, and, sub, xor; cmp */
        uint8_t to = op & 2 ? reg : rm, from = op & 2 ? rm : reg;
        if (op >> 3 == 7) return;
        if (memory) e->loads = op & 2 ? reg : NO_REGISTER;
        else if (to == from && (op >> 3 == 5 || op >> 3 == 6)) copy(e, to, NO_REGISTER, false);
        else copy(e, to, from, true);
    } else if (map == 0) switch (op) {
        case 0x50 ... 0x57: case 0x68: case 0x6a: case 0xe8: e->accesses = true; break;
        case 0x58 ... 0x5f: e->accesses = true, e->loads = low; break;
        case 0xc2: case 0xc3: e->accesses = true; break;
        case 0xc9: e->accesses = true, e->base = RBP, e->loads = RBP; break;
        case 0x63: case 0x69: case 0x6b: case 0x8a: case 0x8b:
            if (memory) e->loads = reg;
            else copy(e, reg, rm, false);
            break;
        case 0x86: case 0x87:
            if (memory) e->loads = reg;
            else copy(e, reg, rm, true), copy(e, rm, reg, true);
            break;
        case 0x88: case 0x89: copy(e, rm, reg, false); break;
        case 0x8d:
            copy(e, reg, e->base, e->index == reg);
            if (e->index != reg) copy(e, reg, e->index, true);
            e->accesses = false;
            break;
        case 0x91 ... 0x97: copy(e, RAX, low, true), copy(e, low, RAX, true); break;
        case 0xa4 ... 0xa7: e->accesses = true, e->base = RSI; break;
        case 0xac: case 0xad: e->accesses = true, e->base = RSI, e->loads = RAX; break;
        case 0xaa: case 0xab: case 0xae: case 0xaf: e->accesses = true, e->base = RDI; break;
        case 0xb0 ... 0xbf: copy(e, low, NO_REGISTER, false); break;
        case 0xc6: case 0xc7: copy(e, rm, NO_REGISTER, false); break;
        case 0xf6: case 0xf7:
            if (digit >= 4) copy(e, RAX, rm, true), copy(e, RDX, RAX, false);
            break;
        default: break;
    } else if (map == 1) switch (op) {
        case 0x05: copy(e, RAX, NO_REGISTER, false), copy(e, RCX, NO_REGISTER, false), copy(e, R11, NO_REGISTER, false); break;
        case 0x0d: case 0x18 ... 0x1f: e->accesses = false; break; /* prefetch, nop */
        case 0x40 ... 0x4f: case 0xaf:
            if (memory) e->loads = reg;
            else copy(e, reg, rm, true);
            break;
        case 0xb6: case 0xb7: case 0xb8: case 0xbc ... 0xbf:
            if (memory) e->loads = reg;
            else copy(e, reg, rm, false);
            break;
        case 0x2c: case 0x2d: case 0x50: case 0xd7: copy(e, reg, NO_REGISTER, false); break;
        case 0x7e: case 0x90 ... 0x9f: copy(e, rm, NO_REGISTER, false); break;
        case 0xb0: case 0xb1: e->loads = RAX; break;
        case 0xc0: case 0xc1: e->loads = reg; break;
        default: break;
    }
}

static Effect decode(const uint8_t *bytes, size_t size) {
    Effect e = {false, NO_REGISTER, NO_REGISTER, NO_REGISTER, 0, {{0, 0, false}}};
    size_t at = 0;
    unsigned map = 0, rex = 0;
    bool vector = false;
    while (at < size && (bytes[at] == 0x66 || bytes[at] == 0x67 || bytes[at] == 0xf0 || bytes[at] == 0xf2 ||
                         bytes[at] == 0xf3 || bytes[at] == 0x2e || bytes[at] == 0x36 || bytes[at] == 0x3e ||
                         bytes[at] == 0x26 || bytes[at] == 0x64 || bytes[at] == 0x65)) at++;
    if (at < size && (bytes[at] & 0xf0) == 0x40) rex = bytes[at++];
    if (at >= size) return e;
    if (bytes[at] == 0xc5 && at + 2 < size) { /* VEX: the bits of REX are inverted */
        rex = (bytes[at + 1] & 0x80 ? 0 : 4), map = 1, vector = true, at += 2;
    } else if ((bytes[at] == 0xc4 || bytes[at] == 0x62) && at + 4 < size) {
        rex = ~bytes[at + 1] >> 5 & 7, map = bytes[at + 1] & 7, vector = true, at += bytes[at] == 0xc4 ? 3 : 4;
    } else if (bytes[at] == 0x0f && at + 1 < size) {
        map = 1, at++;
        if ((bytes[at] == 0x38 || bytes[at] == 0x3a) && at + 1 < size) map = bytes[at++] == 0x38 ? 2 : 3;
    }
    uint8_t op = bytes[at++], low = (op & 7) | (rex & 1) << 3, reg = NO_REGISTER, rm = NO_REGISTER;
    if (has_modrm(map, op) && at < size) {
        uint8_t modrm = bytes[at++], mode = modrm >> 6;
        reg = (modrm >> 3 & 7) | (rex & 4) << 1, rm = (modrm & 7) | (rex & 1) << 3;
        if (mode != 3) {
            e.accesses = true;
            if ((modrm & 7) == 4 && at < size) {
                uint8_t sib = bytes[at], index = (sib >> 3 & 7) | (rex & 2) << 2;
                if (index != RSP) e.index = index;
                if (mode != 0 || (sib & 7) != 5) e.base = (sib & 7) | (rex & 1) << 3;
            } else if (mode != 0 || (modrm & 7) != 5) e.base = rm;
            rm = NO_REGISTER;
        }
    }
    if (!vector) classify(&e, map, op, reg, rm, low);
    return e;
}
