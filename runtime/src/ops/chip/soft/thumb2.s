@ Addition, subtraction and multiplication of f32, and its conversion from i32, for Cortex-M3 and other cores with Thumb-2 and no floating-point unit. Included by mod.rs, which says what this is.
@
@ Operands in r0 and r1, the result in r0; r1 to r3 and r12 are lost. What is not finite, subnormal, or so large or small that the result might be, is left to mod.rs.

    .syntax unified
    .thumb

    .section .text.dmexp_soft_add, "ax", %progbits
    .p2align 1
    .global __aeabi_fsub, __aeabi_fadd
    .type __aeabi_fsub, %function
    .type __aeabi_fadd, %function
    .thumb_func
__aeabi_fsub:
    eor r1, r1, #0x80000000
    .thumb_func
__aeabi_fadd:
    lsl r2, r0, #1
    lsl r3, r1, #1
    cmp r2, r3
    bhs 1f
    mov r12, r0
    mov r0, r1
    mov r1, r12
    mov r12, r2
    mov r2, r3
    mov r3, r12
1:  @ a is the larger. Its exponent must leave room for a carry above and 25 digits below; a smaller operand of 0 is then far below.
    lsr r2, r2, #24
    sub r12, r2, #27
    cmp r12, #226
    bhi 9f
    sub r3, r2, r3, lsr #24
    cmp r3, #25
    bhi 8f
    @ r2: sign and exponent of the result; r0, r1: 24 digits each; then b shifted by the difference r3 into r1 and, what falls out, r12
    teq r0, r1
    lsr r2, r0, #23
    orr r0, r0, #0x800000
    ubfx r0, r0, #0, #24
    orr r1, r1, #0x800000
    ubfx r1, r1, #0, #24
    rsb r12, r3, #32
    lsl r12, r1, r12
    lsr r1, r1, r3
    bmi 3f
    add r0, r0, r1
    cmp r0, #0x1000000
    blo 2f
    lsrs r0, r0, #1
    rrx r12, r12
    add r2, r2, #1
2:  @ The leading digit adds 1 to the exponent. A half and more rounds up, a tie to even.
    sub r2, r2, #1
    cmp r12, #0x80000000
    adc r0, r0, r2, lsl #23
    it eq
    biceq r0, r0, #1
8:  bx lr
3:  rsbs r12, r12, #0
    sbc r0, r0, r1
    tst r0, #0x800000
    bne 2b
    adds r12, r12, r12
    adc r0, r0, r0
    sub r2, r2, #1
    tst r0, #0x800000
    bne 2b
    @ Two leading digits or more are lost only where the exponents differ by 1 at most: nothing is left in r12.
    cmp r0, #0
    beq 8b
    clz r1, r0
    sub r1, r1, #8
    lsl r0, r0, r1
    sub r2, r2, r1
    sub r2, r2, #1
    add r0, r0, r2, lsl #23
    bx lr
9:  b dmexp_soft_add
    .size __aeabi_fadd, . - __aeabi_fadd

    .section .text.dmexp_soft_mul, "ax", %progbits
    .p2align 1
    .global __aeabi_fmul
    .type __aeabi_fmul, %function
    .thumb_func
__aeabi_fmul:
    @ Exponents of 64 to 191 in both: the sum r2, less 1, is the result's, unless it is too large.
    ubfx r2, r0, #23, #8
    ubfx r3, r1, #23, #8
    subs r2, #64
    subs r3, #64
    orr r12, r2, r3
    cmp r12, #127
    bhi 9f
    adds r2, r2, r3
    cmp r2, #252
    bhi 9f
    eor r12, r0, r1
    @ 24 digits at the top of r0, and one place above the bottom of r1: the product has 24 or 25 in the upper word.
    lsls r0, r0, #8
    orr r0, r0, #0x80000000
    lsls r1, r1, #8
    orr r1, r1, #0x80000000
    lsrs r1, r1, #7
    umull r3, r0, r0, r1
    lsrs r12, r12, #31
    orr r2, r2, r12, lsl #8
    cmp r0, #0x1000000
    blo 1f
    lsrs r0, r0, #1
    rrx r3, r3
    adds r2, #1
1:  cmp r3, #0x80000000
    adc r0, r0, r2, lsl #23
    it eq
    biceq r0, r0, #1
    bx lr
9:  b dmexp_soft_mul
    .size __aeabi_fmul, . - __aeabi_fmul

    .section .text.dmexp_soft_i2f, "ax", %progbits
    .p2align 1
    .global __aeabi_i2f
    .type __aeabi_i2f, %function
    .thumb_func
__aeabi_i2f:
    ands r1, r0, #0x80000000
    it mi
    rsbmi r0, r0, #0
    cbz r0, 8f
    clz r2, r0
    lsls r0, r0, r2
    @ The exponent, less the 1 that the leading digit adds.
    rsb r2, r2, #157
    add r1, r1, r2, lsl #23
    lsls r3, r0, #24
    lsrs r0, r0, #8
    cmp r3, #0x80000000
    adc r0, r0, r1
    it eq
    biceq r0, r0, #1
8:  bx lr
    .size __aeabi_i2f, . - __aeabi_i2f

    .text
