@ Kernels over vectors; the macros are those of cortex_m4f_macros.s.

@ s2 = the polynomial of math.rs in s0, step by step; with \add = vsub.f32 in the negative of s0.
.macro POLYNOMIAL add
    vmul.f32 s2, s0, s20
    \add s2, s21, s2
    vmul.f32 s2, s2, s0
    \add s2, s22, s2
    vmul.f32 s2, s2, s0
    \add s2, s23, s2
    vmul.f32 s2, s2, s0
    \add s2, s24, s2
    vmul.f32 s2, s2, s0
    \add s2, s25, s2
    vmul.f32 s2, s2, s0
    \add s2, s25, s2
.endm

@ The bits of exp(\x) in \to, for \x within the range where no case is special. Takes s0-s3 and r12.
@ s16 log2 e, s17 magic, s18-s19 ln 2, s20-s23 the coefficients of r^6 .. r^3, s24 1/2, s25 1: math.rs, step by step.
.macro EXP to, x
    vmul.f32 s1, \x, s16
    vadd.f32 s1, s1, s17
    vsub.f32 s2, s1, s17
    vmul.f32 s3, s2, s18
    vsub.f32 s0, \x, s3
.if SPLIT
    vmul.f32 s3, s2, s19
    vsub.f32 s0, s0, s3
.else
    vmls.f32 s0, s2, s19
.endif
    POLYNOMIAL vadd.f32
    vmov r12, \to, s1, s2
    add \to, \to, r12, lsl #23
.endm

@ The same for exp(-\x): the rest, and with it every odd power, has the other sign.
.macro EXP_NEGATED to, x
    vnmul.f32 s1, \x, s16
    vadd.f32 s1, s1, s17
    vsub.f32 s2, s1, s17
    vmul.f32 s3, s2, s18
    vadd.f32 s0, \x, s3
.if SPLIT
    vmul.f32 s3, s2, s19
    vadd.f32 s0, s0, s3
.else
    vmla.f32 s0, s2, s19
.endif
    POLYNOMIAL vsub.f32
    vmov r12, \to, s1, s2
    add \to, \to, r12, lsl #23
.endm

@ float *f(float *values, float *end, const float constants[11], float largest)
@ Each value becomes exp(value - largest): the first alone where their number is odd, then two at a time; stops at the first or the first two of which one may be below the range or NaN, and
@ returns where. constants[10] is the lowest of the range: no difference is above 0, so if the sum of two is not below it neither is one of them.
    FUNCTION dmexp_m4f_exp_minus
    push {r4, lr}
    vpush {s16-s26}
    vldmia r2, {s16-s26}
    vmov.f32 s6, s0
    sub r3, r1, r0
    lsls r3, r3, #29
    bpl 10f
    vldr s4, [r0]
    vsub.f32 s4, s4, s6
    vcmp.f32 s4, s26
    vmrs APSR_nzcv, fpscr
    blt 20f
    EXP r3, s4
    str r3, [r0], #4
    b 15f
10: vldmia r0, {s4-s5}
    vsub.f32 s4, s4, s6
    vsub.f32 s5, s5, s6
    vadd.f32 s0, s4, s5
    vcmp.f32 s0, s26
    vmrs APSR_nzcv, fpscr
    blt 20f
    EXP r3, s4
    EXP r4, s5
    stmia r0!, {r3, r4}
15: cmp r0, r1
    bne 10b
20: vpop {s16-s26}
    pop {r4, pc}
    .size dmexp_m4f_exp_minus, . - dmexp_m4f_exp_minus

@ float *f(float *gate, float *end, const float constants[10], const float *up, uint32_t limit)
@ gate[i] = silu(gate[i]) * up[i], two at a time; stops at the first two of which one is beyond the range or NaN and returns where. limit is twice the bits of the end of the range on both
@ sides.
    FUNCTION dmexp_m4f_gate
    push {r4-r6, lr}
    vpush {s16-s25}
    vldmia r2, {s16-s25}
    ldr r6, [sp, #56]
10: vldmia r0, {s4-s5}
    vmov r4, r5, s4, s5
    cmp r6, r4, lsl #1
    it hi
    cmphi r6, r5, lsl #1
    bls 20f
    EXP_NEGATED r4, s4
    EXP_NEGATED r5, s5
    vmov s2, s3, r4, r5
    vadd.f32 s2, s2, s25
    vadd.f32 s3, s3, s25
    vldmia r3!, {s0-s1}
    vdiv.f32 s4, s4, s2
    vdiv.f32 s5, s5, s3
    vmul.f32 s4, s4, s0
    vmul.f32 s5, s5, s1
    vstmia r0!, {s4-s5}
    cmp r0, r1
    bne 10b
20: vpop {s16-s25}
    pop {r4-r6, pc}
    .size dmexp_m4f_gate, . - dmexp_m4f_gate

@ float f(const float *x, size_t n, int squares): the canonical sum of n values, or of their squares. The last block is filled up with zeros, which change no lane: none is ever -0.
    FUNCTION dmexp_m4f_sum8
    movs r3, #0
    vmov s0, s1, r3, r3
    vmov s2, s3, r3, r3
    vmov s4, s5, r3, r3
    vmov s6, s7, r3, r3
    b 30f
10: vldmia r0!, {s8-s15}
20: cmp r2, #0
    beq 25f
    vmul.f32 s8, s8, s8
    vmul.f32 s9, s9, s9
    vmul.f32 s10, s10, s10
    vmul.f32 s11, s11, s11
    vmul.f32 s12, s12, s12
    vmul.f32 s13, s13, s13
    vmul.f32 s14, s14, s14
    vmul.f32 s15, s15, s15
25: ADD8 s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15
30: subs r1, r1, #8
    bhs 10b
    cmn r1, #8
    beq 40f
    vmov s8, s9, r3, r3
    vmov s10, s11, r3, r3
    vmov s12, s13, r3, r3
    vmov s14, s15, r3, r3
    mvns r1, r1
    lsls r1, r1, #2
    add pc, r1
    nop
    vldr s14, [r0, #24]
    vldr s13, [r0, #20]
    vldr s12, [r0, #16]
    vldr s11, [r0, #12]
    vldr s10, [r0, #8]
    vldr s9, [r0, #4]
    vldr s8, [r0]
    movs r1, #0
    b 20b
40: vadd.f32 s0, s0, s4
    vadd.f32 s2, s2, s6
    vadd.f32 s1, s1, s5
    vadd.f32 s3, s3, s7
    vadd.f32 s0, s0, s2
    vadd.f32 s1, s1, s3
    vadd.f32 s0, s0, s1
    bx lr
    .size dmexp_m4f_sum8, . - dmexp_m4f_sum8

@ void f(float *x, size_t n, const float *y): x[i] = x[i] + y[i], four at a time and then what is left.
    FUNCTION dmexp_m4f_add
    b 20f
10: vldmia r0, {s0-s3}
    vldmia r2!, {s4-s7}
    vadd.f32 s0, s0, s4
    vadd.f32 s1, s1, s5
    vadd.f32 s2, s2, s6
    vadd.f32 s3, s3, s7
    vstmia r0!, {s0-s3}
20: subs r1, r1, #4
    bhs 10b
    adds r1, r1, #4
    beq 40f
30: vldr s0, [r0]
    vldmia r2!, {s4}
    vadd.f32 s0, s0, s4
    vstmia r0!, {s0}
    subs r1, r1, #1
    bne 30b
40: bx lr
    .size dmexp_m4f_add, . - dmexp_m4f_add

@ void f(float *x, size_t n, float divisor): x[i] = x[i] / divisor, four at a time and then what is left.
    FUNCTION dmexp_m4f_divide
    vmov.f32 s4, s0
    b 20f
10: vldmia r0, {s0-s3}
    vdiv.f32 s0, s0, s4
    vdiv.f32 s1, s1, s4
    vdiv.f32 s2, s2, s4
    vdiv.f32 s3, s3, s4
    vstmia r0!, {s0-s3}
20: subs r1, r1, #4
    bhs 10b
    adds r1, r1, #4
    beq 40f
30: vldr s0, [r0]
    vdiv.f32 s0, s0, s4
    vstmia r0!, {s0}
    subs r1, r1, #1
    bne 30b
40: bx lr
    .size dmexp_m4f_divide, . - dmexp_m4f_divide

@ void f(float *out, size_t n, const float *x, const float *gain, float scale): out[i] = (x[i] * scale) * gain[i], four at a time and then what is left.
    FUNCTION dmexp_m4f_norm
    vmov.f32 s8, s0
    b 20f
10: vldmia r2!, {s0-s3}
    vldmia r3!, {s4-s7}
    vmul.f32 s0, s0, s8
    vmul.f32 s1, s1, s8
    vmul.f32 s2, s2, s8
    vmul.f32 s3, s3, s8
    vmul.f32 s0, s0, s4
    vmul.f32 s1, s1, s5
    vmul.f32 s2, s2, s6
    vmul.f32 s3, s3, s7
    vstmia r0!, {s0-s3}
20: subs r1, r1, #4
    bhs 10b
    adds r1, r1, #4
    beq 40f
30: vldmia r2!, {s0}
    vldmia r3!, {s4}
    vmul.f32 s0, s0, s8
    vmul.f32 s0, s0, s4
    vstmia r0!, {s0}
    subs r1, r1, #1
    bne 30b
40: bx lr
    .size dmexp_m4f_norm, . - dmexp_m4f_norm

@ const float *f(const float *x, const float *end): where the first of the largest lies; four at a time.
    FUNCTION dmexp_m4f_argmax
    mov r2, r0
    vldr s4, [r0]
10: vldmia r0!, {s0-s3}
    .irp at, 0, 1, 2, 3
    vcmp.f32 s\at, s4
    vmrs APSR_nzcv, fpscr
    ble 20f
    vmov.f32 s4, s\at
    sub r2, r0, #16 - 4 * \at
20:
    .endr
    cmp r0, r1
    bne 10b
    mov r0, r2
    bx lr
    .size dmexp_m4f_argmax, . - dmexp_m4f_argmax

@ uint32_t f(const float *x, const float *end): the bits of the largest magnitude; eight at a time.
    FUNCTION dmexp_m4f_largest
    push {r4-r8, lr}
    movs r2, #0
10: ldmia r0!, {r3-r8, r12, lr}
    .irp value, r3, r4, r5, r6, r7, r8, r12, lr
    cmp r2, \value, lsl #1
    it lo
    lsllo r2, \value, #1
    .endr
    cmp r0, r1
    bne 10b
    lsrs r0, r2, #1
    pop {r4-r8, pc}
    .size dmexp_m4f_largest, . - dmexp_m4f_largest

@ void f(float *v, float *end, const float *cos, const float *sin, const float *cos_end, size_t distance, size_t step, size_t skip)
@ Rotates pairs (a, b), b distance bytes after a: (a * c - b * s, a * s + b * c), each product rounded. From one pair to the next are step bytes; after as many as there are cosines, skip bytes to
@ the next head's.
    FUNCTION dmexp_m4f_rotate
    push {r4-r9}
    add r12, sp, #24
    ldmia r12, {r4-r7}
10: mov r8, r2
    mov r9, r3
20: add r12, r0, r5
    vldr s0, [r0]
    vldr s1, [r12]
    vldmia r8!, {s2}
    vldmia r9!, {s3}
    vmul.f32 s4, s0, s2
    vmul.f32 s5, s1, s3
    vmul.f32 s6, s0, s3
    vmul.f32 s7, s1, s2
    vsub.f32 s4, s4, s5
    vadd.f32 s6, s6, s7
    vstr s4, [r0]
    vstr s6, [r12]
    add r0, r0, r6
    cmp r8, r4
    bne 20b
    add r0, r0, r7
    cmp r0, r1
    bne 10b
    pop {r4-r9}
    bx lr
    .size dmexp_m4f_rotate, . - dmexp_m4f_rotate

@ float f(float): the IEEE square root
    FUNCTION dmexp_m4f_sqrt
    vsqrt.f32 s0, s0
    bx lr
    .size dmexp_m4f_sqrt, . - dmexp_m4f_sqrt

@ float f(uint32_t): the value of the half-precision pattern in the low bits
    FUNCTION dmexp_m4f_widen_f16
    vmov s0, r0
    vcvtb.f32.f16 s0, s0
    bx lr
    .size dmexp_m4f_widen_f16, . - dmexp_m4f_widen_f16

@ void f(uint16_t *to, const float *from, size_t n): narrowed to nearest even, two at a time where to is at a whole word; n is not 0.
    FUNCTION dmexp_m4f_narrow_f16
    lsls r3, r0, #30
    bmi 30f
    b 20f
10: vldmia r1!, {s0-s1}
    vcvtb.f16.f32 s0, s0
    vcvtt.f16.f32 s0, s1
    vstmia r0!, {s0}
20: subs r2, r2, #2
    bhs 10b
    adds r2, r2, #2
    beq 40f
30: vldmia r1!, {s0}
    vcvtb.f16.f32 s0, s0
    vmov r3, s0
    strh r3, [r0], #2
    subs r2, r2, #1
    bne 30b
40: bx lr
    .size dmexp_m4f_narrow_f16, . - dmexp_m4f_narrow_f16

    .text
