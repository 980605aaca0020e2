# Addition, subtraction and multiplication of f32, and its conversion from i32, for RV32IM without a floating-point unit. Included by mod.rs, which says what this is.
#
# Operands in a0 and a1, the result in a0; t0 to t5 are lost. What is not finite, subnormal, or so large or small that the result might be, is left to mod.rs.

    .option push
    # What the target has is not passed on to assembly; every target that this is for has both.
    .option arch, +m, +c
    .option norelax
    .section .text.dmexp_soft_add, "ax", @progbits
    .p2align 1
    .globl __subsf3, __addsf3
    .type __addsf3, @function
__subsf3:
    lui t0, 0x80000
    xor a1, a1, t0
__addsf3:
    slli t0, a0, 1
    slli t1, a1, 1
    bgeu t0, t1, 1f
    mv t2, a0
    mv a0, a1
    mv a1, t2
    mv t2, t0
    mv t0, t1
    mv t1, t2
1:  # a is the larger. Its exponent must leave room for a carry above and 25 digits below; a smaller operand of 0 is then far below.
    srli t0, t0, 24
    addi t2, t0, -27
    li t3, 226
    bltu t3, t2, 9f
    srli t1, t1, 24
    sub t1, t0, t1
    li t3, 25
    bltu t3, t1, 8f
    xor t4, a0, a1
    # t0: sign and exponent of the result; a0, a1: 24 digits each; then b shifted by the difference t1 into a1 and, what falls out, t2
    srli t0, a0, 23
    lui t3, 0x800
    addi t5, t3, -1
    and a0, a0, t5
    or a0, a0, t3
    and a1, a1, t5
    or a1, a1, t3
    not t2, t1
    sll t2, a1, t2
    slli t2, t2, 1
    srl a1, a1, t1
    bltz t4, 3f
    add a0, a0, a1
    srli t3, a0, 24
    beqz t3, 2f
    slli t3, a0, 31
    srli t2, t2, 1
    or t2, t2, t3
    srli a0, a0, 1
    addi t0, t0, 1
2:  # The leading digit adds 1 to the exponent. A half and more rounds up, a tie to even.
    addi t0, t0, -1
    slli t0, t0, 23
    add a0, a0, t0
    bgez t2, 8f
    addi a0, a0, 1
    slli t2, t2, 1
    bnez t2, 8f
    andi a0, a0, -2
8:  ret
3:  snez t3, t2
    neg t2, t2
    sub a0, a0, a1
    sub a0, a0, t3
    srli t3, a0, 23
    bnez t3, 2b
    srli t3, t2, 31
    slli t2, t2, 1
    slli a0, a0, 1
    or a0, a0, t3
    addi t0, t0, -1
    srli t3, a0, 23
    bnez t3, 2b
    # Two leading digits or more are lost only where the exponents differ by 1 at most: nothing is left in t2.
    beqz a0, 8b
4:  slli a0, a0, 1
    addi t0, t0, -1
    srli t3, a0, 23
    beqz t3, 4b
    j 2b
9:  tail dmexp_soft_add
    .size __addsf3, . - __addsf3

    .section .text.dmexp_soft_mul, "ax", @progbits
    .p2align 1
    .globl __mulsf3
    .type __mulsf3, @function
__mulsf3:
    # Exponents of 64 to 191 in both: the sum t0, less 1, is the result's, unless it is too large.
    slli t0, a0, 1
    slli t1, a1, 1
    srli t0, t0, 24
    srli t1, t1, 24
    addi t0, t0, -64
    addi t1, t1, -64
    or t2, t0, t1
    srli t2, t2, 7
    bnez t2, 9f
    add t0, t0, t1
    li t3, 252
    bltu t3, t0, 9f
    lui t3, 0x80000
    xor t4, a0, a1
    and t4, t4, t3
    # 24 digits at the top of a0, and one place above the bottom of a1: the product has 24 or 25 in the upper word.
    slli a0, a0, 8
    or a0, a0, t3
    slli a1, a1, 8
    or a1, a1, t3
    srli a1, a1, 7
    mul t2, a0, a1
    mulhu a0, a0, a1
    srli t3, a0, 24
    beqz t3, 1f
    slli t3, a0, 31
    srli t2, t2, 1
    or t2, t2, t3
    srli a0, a0, 1
    addi t0, t0, 1
1:  slli t0, t0, 23
    add a0, a0, t0
    or a0, a0, t4
    bgez t2, 8f
    addi a0, a0, 1
    slli t2, t2, 1
    bnez t2, 8f
    andi a0, a0, -2
8:  ret
9:  tail dmexp_soft_mul
    .size __mulsf3, . - __mulsf3

    .section .text.dmexp_soft_i2f, "ax", @progbits
    .p2align 1
    .globl __floatsisf
    .type __floatsisf, @function
__floatsisf:
    beqz a0, 8f
    srai t0, a0, 31
    xor a0, a0, t0
    sub a0, a0, t0
    slli t0, t0, 31
    # The leading digit is brought to bit 31; t1: the exponent, less the 1 that the digit adds
    li t1, 157
    .irp shift, 16, 8, 4, 2, 1
    srli t2, a0, 32-\shift
    bnez t2, 1f
    slli a0, a0, \shift
    addi t1, t1, -\shift
1:
    .endr
    slli t2, a0, 24
    srli a0, a0, 8
    slli t1, t1, 23
    add a0, a0, t1
    or a0, a0, t0
    bgez t2, 8f
    addi a0, a0, 1
    slli t2, t2, 1
    bnez t2, 8f
    andi a0, a0, -2
8:  ret
    .size __floatsisf, . - __floatsisf
    .option pop
    .text
