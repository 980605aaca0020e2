@ Addition, subtraction, multiplication and division of f32, and its conversion from i32, for Cortex-M0 and other cores of Armv6-M. Included by mod.rs, which says what this is.
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
    movs r2, #1
    lsls r2, r2, #31
    eors r1, r2
    .thumb_func
__aeabi_fadd:
    lsls r2, r0, #1
    lsls r3, r1, #1
    cmp r2, r3
    bhs 1f
    mov r12, r0
    mov r0, r1
    mov r1, r12
    mov r12, r2
    mov r2, r3
    mov r3, r12
1:  @ a is the larger. Its exponent must leave room for a carry above and 25 digits below; a smaller operand of 0 is then far below.
    lsrs r2, r2, #24
    lsrs r3, r3, #24
    subs r3, r2, r3
    subs r2, #27
    cmp r2, #226
    bhi 9f
    cmp r3, #25
    bhi 8f
    push {r4, r5, lr}
    @ r2: sign and exponent of the result; r0, r1: 24 digits each with 7 places after them, b's shifted by the difference r3
    lsrs r2, r0, #23
    movs r4, #1
    lsls r4, r4, #31
    mov r5, r0
    eors r5, r1
    bmi 3f
    lsls r0, r0, #8
    orrs r0, r4
    lsrs r0, r0, #1
    lsls r1, r1, #8
    orrs r1, r4
    lsrs r1, r1, #1
    mov r12, r1
    lsrs r1, r3
    adds r0, r1
    bmi 5f
    @ The leading digit, in bit 30, adds 1 to the exponent. A half and more rounds up; what looks like a tie (which alone overflows when negated) goes to 6.
    subs r2, #1
    lsls r2, r2, #23
    lsls r4, r0, #25
    lsrs r0, r0, #7
    adcs r0, r2
    rsbs r4, r4, #0
    bvs 6f
    pop {r4, r5, pc}
5:  @ A carry: 24 digits from bit 31 on.
    lsls r2, r2, #23
    lsls r4, r0, #24
    lsrs r0, r0, #8
    adcs r0, r2
    rsbs r4, r4, #0
    bvs 6f
    pop {r4, r5, pc}
6:  @ It is a tie, and goes to even, if b lost nothing by the shift.
    mov r4, r12
    movs r5, #32
    subs r5, r3
    lsls r4, r5
    bne 7f
10: lsrs r0, r0, #1
    lsls r0, r0, #1
7:  pop {r4, r5, pc}
8:  bx lr
3:  @ The difference; what b loses by the shift is kept as one digit.
    lsls r0, r0, #8
    orrs r0, r4
    lsrs r0, r0, #1
    lsls r1, r1, #8
    orrs r1, r4
    lsrs r1, r1, #1
    mov r4, r1
    lsrs r1, r3
    movs r5, #32
    subs r5, r3
    lsls r4, r5
    beq 1f
    movs r4, #1
    orrs r1, r4
1:  subs r0, r1
    beq 7b
    lsls r4, r0, #1
    bmi 2f
    lsrs r4, r0, #23
    bne 4f
11: lsls r0, r0, #8
    subs r2, #8
    lsrs r4, r0, #23
    beq 11b
    lsls r4, r0, #1
    bmi 2f
4:  lsls r0, r0, #1
    subs r2, #1
    lsls r4, r0, #1
    bpl 4b
2:  subs r2, #1
    lsls r2, r2, #23
    lsls r4, r0, #25
    lsrs r0, r0, #7
    adcs r0, r2
    rsbs r4, r4, #0
    bvs 10b
    pop {r4, r5, pc}
9:  ldr r3, =dmexp_soft_add
    bx r3
    .pool
    .size __aeabi_fadd, . - __aeabi_fadd

    .section .text.dmexp_soft_mul, "ax", %progbits
    .p2align 1
    .global __aeabi_fmul
    .type __aeabi_fmul, %function
    .thumb_func
__aeabi_fmul:
    @ r2, r3: signs and exponents. Exponents of 64 to 190 in both: the sum r2, less 127, is the result's, and its sign is above it.
    push {r4, r5, lr}
    lsrs r2, r0, #23
    lsrs r3, r1, #23
    uxtb r4, r2
    subs r4, #64
    cmp r4, #126
    bhi 9f
    uxtb r4, r3
    subs r4, #64
    cmp r4, #126
    bhi 9f
    adds r2, r3
    subs r2, #128
    @ r0, r1: the upper 16 of the 24 digits; r3, r4: the lower 8
    movs r5, #128
    lsls r5, r5, #8
    uxtb r3, r0
    uxtb r4, r1
    lsls r0, r0, #9
    lsrs r0, r0, #17
    orrs r0, r5
    lsls r1, r1, #9
    lsrs r1, r1, #17
    orrs r1, r5
    @ The product is 2^16 r0 r1 + 2^8 (r0 r4 + r3 r1) + r3 r4; its upper 32 digits go to r0, the others are in the low bytes of r3 and r5.
    mov r5, r3
    muls r5, r4
    muls r4, r0
    muls r3, r1
    adds r3, r4
    lsrs r4, r5, #8
    adds r3, r4
    muls r0, r1
    lsrs r4, r3, #8
    adds r0, r4
    bmi 1f
    @ As in the addition.
    lsls r2, r2, #23
    lsls r4, r0, #25
    lsrs r0, r0, #7
    adcs r0, r2
    rsbs r4, r4, #0
    bvs 6f
    pop {r4, r5, pc}
1:  adds r2, #1
    lsls r2, r2, #23
    lsls r4, r0, #24
    lsrs r0, r0, #8
    adcs r0, r2
    rsbs r4, r4, #0
    bvs 6f
    pop {r4, r5, pc}
6:  @ It is a tie, and goes to even, if the lower digits are 0.
    orrs r3, r5
    lsls r3, r3, #24
    bne 7f
    lsrs r0, r0, #1
    lsls r0, r0, #1
7:  pop {r4, r5, pc}
9:  bl dmexp_soft_mul
    pop {r4, r5, pc}
    .size __aeabi_fmul, . - __aeabi_fmul

    .section .text.dmexp_soft_div, "ax", %progbits
    .p2align 1
    .global __aeabi_fdiv
    .type __aeabi_fdiv, %function
    .thumb_func
__aeabi_fdiv:
    @ As in the multiplication, with exponents of 64 to 189: their difference, plus 127, is the result's.
    push {r4, r5, lr}
    lsrs r2, r0, #23
    lsrs r3, r1, #23
    uxtb r4, r2
    subs r4, #64
    cmp r4, #125
    bhi 9f
    uxtb r4, r3
    subs r4, #64
    cmp r4, #125
    bhi 9f
    subs r2, r3
    adds r2, #126
    @ r0, r1: 24 digits each; the quotient's first digit is 1 where a's are the larger number
    movs r4, #128
    lsls r4, r4, #24
    lsls r0, r0, #8
    orrs r0, r4
    lsrs r0, r0, #8
    lsls r1, r1, #8
    orrs r1, r4
    lsrs r1, r1, #8
    cmp r0, r1
    bhs 1f
    lsls r0, r0, #1
    subs r2, #1
1:  @ 25 digits of the quotient to r3
    movs r3, #0
    movs r4, #5
2:
    .rept 5
    cmp r0, r1
    blo 3f
    subs r0, r1
3:  adcs r3, r3
    lsls r0, r0, #1
    .endr
    subs r4, #1
    bne 2b
    @ The last digit is a half; no quotient of 24 digits each is a tie.
    lsls r2, r2, #23
    lsrs r0, r3, #1
    adcs r0, r2
    pop {r4, r5, pc}
9:  bl dmexp_soft_div
    pop {r4, r5, pc}
    .size __aeabi_fdiv, . - __aeabi_fdiv

    .section .text.dmexp_soft_exp_polynomial, "ax", %progbits
    .p2align 2
    .global dmexp_soft_exp_polynomial
    .type dmexp_soft_exp_polynomial, %function
    .thumb_func
@ p = c6; p = p r + c for c = c5, c4, c3, 1/2, 1, 1: every product and every sum rounded to 24 digits, ties to even. |r| is below 0.36, so p is positive, and every sum has the exponent of its c or
@ the one below.
dmexp_soft_exp_polynomial:
    lsls r1, r0, #1
    lsrs r1, r1, #24
    cmp r1, #64
    blo 9f
    movs r2, #126
    subs r2, r1
    push {r2, r4, r5, r6, r7, lr}
    mov r12, r2
    asrs r3, r0, #31
    mov lr, r3
    @ r4, r5: the upper 16 and the lower 8 of r's 24 digits; r7: p's; lr: r's sign in every digit; r12: 126 less r's exponent, and 1 more where p's is the lower one; r6: the next c
    uxtb r5, r0
    lsls r4, r0, #9
    lsrs r4, r4, #17
    movs r2, #128
    lsls r2, r2, #8
    orrs r4, r2
    adr r6, 10f
    ldmia r6!, {r7}
1:  @ The product, as in the multiplication: to r0, its lower digits in the low byte of r1
    lsrs r0, r7, #8
    uxtb r1, r7
    mov r2, r1
    muls r2, r5
    muls r1, r4
    mov r3, r0
    muls r3, r5
    adds r1, r3
    lsrs r3, r2, #8
    adds r1, r3
    lsrs r3, r1, #8
    orrs r1, r2
    muls r0, r4
    adds r0, r3
    mov r3, r12
    bmi 2f
    lsls r2, r0, #25
    lsrs r0, r0, #7
    bcc 4f
    b 3f
2:  subs r3, #1
    lsls r2, r0, #24
    lsrs r0, r0, #8
    bcc 4f
3:  adds r0, #1
    rsbs r2, r2, #0
    bvc 4f
    lsls r1, r1, #24
    bne 4f
    lsrs r0, r0, #1
    lsls r0, r0, #1
4:  @ r1: c's digits from bit 31 on. The low byte of its word is how much larger its exponent is than that of the c before. The product is shifted right to c's places; what falls out is kept
    @ as one digit.
    ldmia r6!, {r1}
    uxtb r2, r1
    subs r1, r1, r2
    adds r3, r3, r2
    lsls r0, r0, #7
    mov r2, r0
    lsrs r0, r3
    rsbs r3, r3, #0
    adds r3, #32
    lsls r2, r3
    beq 5f
    movs r2, #1
    orrs r0, r2
5:  mov r3, lr
    eors r0, r3
    subs r0, r0, r3
    adds r1, r1, r0
    bmi 6f
    movs r3, #1
    lsls r2, r1, #25
    lsrs r7, r1, #7
    bcc 8f
    b 7f
6:  movs r3, #0
    lsls r2, r1, #24
    lsrs r7, r1, #8
    bcc 8f
7:  adds r7, #1
    rsbs r2, r2, #0
    bvc 8f
    lsrs r7, r7, #1
    lsls r7, r7, #1
8:  ldr r2, [sp]
    adds r2, r2, r3
    mov r12, r2
    ldr r2, [r6]
    cmp r2, #0
    bne 1b
    @ The leading digit adds 1 to the exponent.
    movs r0, #126
    subs r0, r0, r3
    lsls r0, r0, #23
    adds r0, r0, r7
    pop {r2, r4, r5, r6, r7, pc}
9:  @ So little added to 1, or taken from it, is lost.
    movs r0, #127
    lsls r0, r0, #23
    bx lr
    .p2align 2
10: .word 0x00b66f79, 0x88eca903, 0xaaaa9f02, 0xaaaa9302, 0x80000002, 0x80000001, 0x80000000, 0
    .size dmexp_soft_exp_polynomial, . - dmexp_soft_exp_polynomial

    .section .text.dmexp_soft_i2f, "ax", %progbits
    .p2align 1
    .global __aeabi_i2f
    .type __aeabi_i2f, %function
    .thumb_func
__aeabi_i2f:
    asrs r1, r0, #31
    eors r0, r1
    subs r0, r1
    beq 8f
    @ The leading digit is brought to bit 31; r2: the exponent, less the 1 that the digit adds
    movs r2, #157
    lsrs r3, r0, #16
    bne 1f
    lsls r0, r0, #16
    subs r2, #16
1:  lsrs r3, r0, #24
    bne 1f
    lsls r0, r0, #8
    subs r2, #8
1:  lsrs r3, r0, #28
    bne 1f
    lsls r0, r0, #4
    subs r2, #4
1:  lsrs r3, r0, #30
    bne 1f
    lsls r0, r0, #2
    subs r2, #2
1:  lsrs r3, r0, #31
    bne 1f
    lsls r0, r0, #1
    subs r2, #1
1:  lsls r2, r2, #23
    lsls r1, r1, #31
    adds r2, r2, r1
    lsls r3, r0, #24
    lsrs r0, r0, #8
    adcs r0, r2
    rsbs r3, r3, #0
    bvs 6f
8:  bx lr
6:  lsrs r0, r0, #1
    lsls r0, r0, #1
    bx lr
    .size __aeabi_i2f, . - __aeabi_i2f

    .text
