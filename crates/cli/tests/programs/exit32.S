# A 32-bit program: it ends with code 3. Assembled with cc -m32 -nostdlib -static, which needs no library.
    .globl _start
_start:
    movl $1, %eax
    movl $3, %ebx
    int $0x80

    .section .note.GNU-stack, "", @progbits
