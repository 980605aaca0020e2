@ A row of a q8 matrix times integer activations for Cortex-M0 and other cores of Armv6-M. Included by mod.rs.

    .syntax unified
    .thumb
    .section .text.dmexp_rows_q8, "ax", %progbits
    .p2align 1
    .global dmexp_rows_q8
    .type dmexp_rows_q8, %function
    .thumb_func
@ r0: codes; r1: x; r2: multipliers; r3: Step; on the stack: sums
dmexp_rows_q8:
    push {r4-r7, lr}
    mov r4, r8
    mov r5, r9
    mov r6, r10
    mov r7, r11
    push {r4-r7}
    mov r9, r2
    ldr r4, [r3, #8]
    mov r11, r4
    ldr r4, [r3, #12]
    mov r10, r4
    @ r12, lr: sums of the lower and the upper halves of the groups' sums times their multipliers; 256 groups fit
    movs r4, #0
    mov r12, r4
    mov lr, r4
1:  @ A group: to r8.
    mov r4, r11
    adds r4, r4, r1
    cmp r4, r10
    bls 2f
    mov r4, r10
2:  mov r8, r4
    movs r3, #0
3:
    .rept 2
    ldmia r0!, {r4}
    ldmia r1!, {r5, r6}
    sxtb r7, r4
    sxth r2, r5
    muls r2, r7
    adds r3, r2
    asrs r4, r4, #8
    sxtb r7, r4
    asrs r5, r5, #16
    muls r5, r7
    adds r3, r5
    asrs r4, r4, #8
    sxtb r7, r4
    sxth r2, r6
    muls r2, r7
    adds r3, r2
    asrs r4, r4, #8
    asrs r6, r6, #16
    muls r6, r4
    adds r3, r6
    .endr
    cmp r1, r8
    blo 3b
    mov r7, r9
    ldrb r2, [r7]
    adds r7, #1
    mov r9, r7
    uxth r4, r3
    muls r4, r2
    add r12, r4
    asrs r3, r3, #16
    muls r3, r2
    add lr, r3
    cmp r1, r10
    blo 1b
    mov r2, r12
    mov r3, lr
    lsls r4, r3, #16
    asrs r3, r3, #16
    movs r5, #0
    adds r2, r2, r4
    adcs r3, r5
    ldr r4, [sp, #36]
    stmia r4!, {r2, r3}
    pop {r4-r7}
    mov r8, r4
    mov r9, r5
    mov r10, r6
    mov r11, r7
    pop {r4-r7, pc}
    .size dmexp_rows_q8, . - dmexp_rows_q8

    .text
