@ Rows of a q8 matrix times integer activations for Cortex-M3: two rows at a time, so that an activation is loaded once for two products. Included by mod.rs.

    .syntax unified
    .thumb
    .section .text.dmexp_rows_q8, "ax", %progbits
    .p2align 1
    .global dmexp_rows_q8
    .type dmexp_rows_q8, %function
    .thumb_func
@ r0: codes; r1: x; r2: multipliers; r3: Step; on the stack: sums
dmexp_rows_q8:
    push {r4-r11, lr}
    ldr r10, [sp, #36]
    ldr r4, [r3]
    add r4, r4, r0
    ldr r11, [r3, #12]
    movs r5, #0
    strd r5, r5, [r10]
    strd r5, r5, [r10, #8]
1:  @ A group: to r9.
    ldr r9, [r3, #8]
    add r9, r9, r1
    cmp r9, r11
    it hi
    movhi r9, r11
    movs r5, #0
    movs r6, #0
2:
    .rept 8
    ldrsh r8, [r1], #2
    ldrsb r7, [r0], #1
    ldrsb r12, [r4], #1
    mla r5, r7, r8, r5
    mla r6, r12, r8, r6
    .endr
    cmp r1, r9
    blo 2b
    @ Each row's sum of 64 bits grows by its group's times the multiplier.
    ldr r8, [r3, #4]
    ldrb r7, [r2]
    ldrb r8, [r2, r8]
    adds r2, #1
    ldrd r12, lr, [r10]
    smlal r12, lr, r5, r7
    strd r12, lr, [r10]
    ldrd r12, lr, [r10, #8]
    smlal r12, lr, r6, r8
    strd r12, lr, [r10, #8]
    cmp r1, r11
    blo 1b
    pop {r4-r11, pc}
    .size dmexp_rows_q8, . - dmexp_rows_q8

    .text
