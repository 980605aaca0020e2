@ Attention over keys and values in f32 and f16; the macros are those of cortex_m4f_macros.s and cortex_m4f_matvec.s.

@ Eight elements of a key from r0 on times s0-s7.
.macro KEY_F32 do
    vldmia r0!, {s8-s15}
    \do s16, s17, s18, s19, s20, s21, s22, s23, s8, s9, s10, s11, s12, s13, s14, s15
.endm

.macro KEY_F16 do
    LOAD8_F16 r0
    \do s16, s17, s18, s19, s20, s21, s22, s23, s12, s8, s13, s9, s14, s10, s15, s11
.endm

.macro PRODUCTS8 a0, a1, a2, a3, a4, a5, a6, a7, w0, w1, w2, w3, w4, w5, w6, w7
    vmul.f32 \a0, \w0, s0
    vmul.f32 \a1, \w1, s1
    vmul.f32 \a2, \w2, s2
    vmul.f32 \a3, \w3, s3
    vmul.f32 \a4, \w4, s4
    vmul.f32 \a5, \w5, s5
    vmul.f32 \a6, \w6, s6
    vmul.f32 \a7, \w7, s7
.endm

@ float f(const T *keys, const float *q, const float *q_end, size_t gap, float *scores, float *scores_end, float scale, float largest)
@ scores[t] = dot8(key t, q) * scale, but for the sign of a zero, which no exponential sees; returns the largest of them and of what came. q is a number of eights; gap is from the end of a
@ key to the next, in bytes.
@ r4 scores, r5 their end; r12 in q, whose first eight are in s0-s7 where a key begins; s24 scale, s25 the largest.
.macro SCORES name, key
    FUNCTION \name
    push {r4-r5}
    vpush {s16-s25}
    vmov.f32 s24, s0
    vmov.f32 s25, s1
    ldrd r4, r5, [sp, #48]
    mov r12, r1
    vldmia r12!, {s0-s7}
20: \key PRODUCTS8
    cmp r12, r2
    bne 30f
40: vadd.f32 s16, s16, s20
    vadd.f32 s18, s18, s22
    vadd.f32 s17, s17, s21
    vadd.f32 s19, s19, s23
    vadd.f32 s16, s16, s18
    vadd.f32 s17, s17, s19
    add r0, r0, r3
    vadd.f32 s16, s16, s17
    vmul.f32 s16, s16, s24
    vcmp.f32 s16, s25
    vmrs APSR_nzcv, fpscr
    it gt
    vmovgt.f32 s25, s16
    vstmia r4!, {s16}
    cmp r4, r5
    bne 20b
    vmov.f32 s0, s25
    vpop {s16-s25}
    pop {r4-r5}
    bx lr
30: vldmia r12!, {s0-s7}
    \key MULADD8
    cmp r12, r2
    bne 30b
    mov r12, r1
    vldmia r12!, {s0-s7}
    b 40b
    .size \name, . - \name
.endm

    SCORES dmexp_m4f_scores_f32, KEY_F32
    SCORES dmexp_m4f_scores_f16, KEY_F16

@ Four stored elements, widened; the registers come in the order of the elements.
.macro WEIGH_F32 do, a0, a1, a2, a3
    vldmia r9!, {s8-s11}
    \do \a0, \a1, \a2, \a3, s8, s9, s10, s11, s12, s12, s12, s12
.endm

.macro WEIGH_F16 do, a0, a1, a2, a3
    vldmia r9!, {s8-s9}
    vcvtb.f32.f16 s10, s8
    vcvtt.f32.f16 s8, s8
    vcvtb.f32.f16 s11, s9
    vcvtt.f32.f16 s9, s9
    \do \a0, \a1, \a2, \a3, s10, s8, s11, s9, s12, s12, s12, s12
.endm

.macro MUL4 a0, a1, a2, a3, w0, w1, w2, w3, x0, x1, x2, x3
    vmul.f32 \a0, \w0, \x0
    vmul.f32 \a1, \w1, \x1
    vmul.f32 \a2, \w2, \x2
    vmul.f32 \a3, \w3, \x3
.endm

@ s0-s7 = the sums of lane r12 for eight columns, but for the sign of a zero. Called by dmexp_m4f_mix alone, whose registers it shares: r8 the weight, r9 the value.
.macro LANE name, weigh
    FUNCTION \name
    sub r12, r12, r6
    and r12, r12, #7
    add r8, r1, r12, lsl #2
    cmp r8, r2
    bhs 30f
    mla r9, r12, r3, r0
    vldr s12, [r8]
    \weigh MUL4, s0, s1, s2, s3
    \weigh MUL4, s4, s5, s6, s7
    add r8, r8, #32
    cmp r8, r2
    bhs 20f
10: add r9, r9, r4
    vldr s12, [r8]
    \weigh MULADD4, s0, s1, s2, s3
    \weigh MULADD4, s4, s5, s6, s7
    add r8, r8, #32
    cmp r8, r2
    blo 10b
20: bx lr
30: movs r8, #0
    vmov s0, s1, r8, r8
    vmov s2, s3, r8, r8
    vmov s4, s5, r8, r8
    vmov s6, s7, r8, r8
    bx lr
    .size \name, . - \name
.endm

    LANE dmexp_m4f_lane_f32, WEIGH_F32
    LANE dmexp_m4f_lane_f16, WEIGH_F16

@ A sum begins: += +0, which makes +0 of -0, as a sum from +0 on is.
.macro BEGIN8 a0, a1, a2, a3, a4, a5, a6, a7
    vadd.f32 \a0, s0, s13
    vadd.f32 \a1, s1, s13
    vadd.f32 \a2, s2, s13
    vadd.f32 \a3, s3, s13
    vadd.f32 \a4, s4, s13
    vadd.f32 \a5, s5, s13
    vadd.f32 \a6, s6, s13
    vadd.f32 \a7, s7, s13
.endm

@ void f(const T *v, const float *weights, const float *weights_end, size_t stride, size_t step, lane function, size_t first_lane, float out[8])
@ out[j] = sum8 over t of weights[t] * v[t * stride bytes + j] for eight columns, lane after lane; weights[0] belongs to the lane first_lane. step is from the end of a row's columns to those
@ eight rows on.
@ r4 step; r5 the lane function; r6 the first lane; r7 out; r10 0 for the even lanes, 1 for the odd ones; s16-s23 and s24-s31 sums of lanes.
    FUNCTION dmexp_m4f_mix
    push {r4-r10, lr}
    vpush {s16-s31}
    ldrd r4, r5, [sp, #96]
    ldrd r6, r7, [sp, #104]
    mov r10, #0
    vmov s13, r10
10: mov r12, r10
    blx r5
    BEGIN8 s16, s17, s18, s19, s20, s21, s22, s23
    add r12, r10, #4
    blx r5
    ADD8 s16, s17, s18, s19, s20, s21, s22, s23, s0, s1, s2, s3, s4, s5, s6, s7
    add r12, r10, #2
    blx r5
    BEGIN8 s24, s25, s26, s27, s28, s29, s30, s31
    add r12, r10, #6
    blx r5
    ADD8 s24, s25, s26, s27, s28, s29, s30, s31, s0, s1, s2, s3, s4, s5, s6, s7
    ADD8 s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31
    cmp r10, #0
    bne 20f
    vstmia r7, {s16-s23}
    mov r10, #1
    b 10b
20: vldmia r7, {s0-s7}
    ADD8 s0, s1, s2, s3, s4, s5, s6, s7, s16, s17, s18, s19, s20, s21, s22, s23
    vstmia r7, {s0-s7}
    vpop {s16-s31}
    pop {r4-r10, pc}
    .size dmexp_m4f_mix, . - dmexp_m4f_mix
