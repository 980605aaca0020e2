# Rows of a q8 matrix times integer activations for RV32IM: four rows at a time, so that an activation is loaded once for four products. Included by mod.rs.

    .option push
    # What the target has is not passed on to assembly; every target that this is for has both.
    .option arch, +m, +c
    .section .text.dmexp_rows_q8, "ax", @progbits
    .p2align 1
    .globl dmexp_rows_q8
    .type dmexp_rows_q8, @function
# a0: codes; a1: x; a2: multipliers; a3: Step; a4: sums
dmexp_rows_q8:
    addi sp, sp, -32
    sw s0, 0(sp)
    sw s1, 4(sp)
    sw s2, 8(sp)
    sw s3, 12(sp)
    sw s4, 16(sp)
    sw s5, 20(sp)
    lw t0, 0(a3)
    add a5, a0, t0
    add a6, a5, t0
    add a7, a6, t0
    lw s4, 4(a3)
    lw s5, 12(a3)
    .irp at, 0, 4, 8, 12, 16, 20, 24, 28
    sw zero, \at(a4)
    .endr
1:  # A group: to t0.
    lw t0, 8(a3)
    add t0, a1, t0
    bgeu s5, t0, 2f
    mv t0, s5
2:  li s0, 0
    li s1, 0
    li s2, 0
    li s3, 0
3:
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    lh t1, 2*\i(a1)
    lb t2, \i(a0)
    lb t3, \i(a5)
    lb t4, \i(a6)
    lb t5, \i(a7)
    mul t2, t2, t1
    mul t3, t3, t1
    mul t4, t4, t1
    mul t5, t5, t1
    add s0, s0, t2
    add s1, s1, t3
    add s2, s2, t4
    add s3, s3, t5
    .endr
    addi a1, a1, 16
    addi a0, a0, 8
    addi a5, a5, 8
    addi a6, a6, 8
    addi a7, a7, 8
    bltu a1, t0, 3b
    # Each row's sum of 64 bits grows by its group's times the multiplier.
    mv t1, a2
    .macro grow sum, at
    lbu t2, 0(t1)
    add t1, t1, s4
    mul t3, \sum, t2
    mulh t4, \sum, t2
    lw t5, \at(a4)
    add t5, t5, t3
    sltu t3, t5, t3
    sw t5, \at(a4)
    lw t5, \at+4(a4)
    add t5, t5, t4
    add t5, t5, t3
    sw t5, \at+4(a4)
    .endm
    grow s0, 0
    grow s1, 8
    grow s2, 16
    grow s3, 24
    .purgem grow
    addi a2, a2, 1
    bltu a1, s5, 1b
    lw s0, 0(sp)
    lw s1, 4(sp)
    lw s2, 8(sp)
    lw s3, 12(sp)
    lw s4, 16(sp)
    lw s5, 20(sp)
    addi sp, sp, 32
    ret
    .size dmexp_rows_q8, . - dmexp_rows_q8
    .option pop
    .text
