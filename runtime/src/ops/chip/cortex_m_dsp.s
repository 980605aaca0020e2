@ Integer kernels for cores with the DSP instructions and a floating-point unit (Cortex-M4F, M7F, M33F). Called through cortex_m_dsp.rs, which checks every length.
@
@ Activation codes come in the order in which two of them meet two codes of a weight word: for q8 within each four (0, 2), (1, 3), as sxtb16 takes bytes apart; for q4 within
@ each eight (0, 4), (1, 5), (2, 6), (3, 7), as a mask takes nibbles apart.

    .syntax unified
    .thumb
    .fpu fpv4-sp-d16

.macro DSP_FUNCTION name
    .section .text.\name, "ax", %progbits
    .p2align 2
    .global \name
    .hidden \name
    .type \name, %function
    .thumb_func
\name:
.endm

@ Four codes of a row in \w times the activations \x0 and \x1, added to \acc; \first is smuad where the sum begins.
.macro FOUR_Q8 acc, w, x0, x1
    sxtb16 r10, \w
    sxtb16 \w, \w, ror #8
    smlad \acc, r10, \x0, \acc
    smlad \acc, \w, \x1, \acc
.endm

.macro FOUR_Q8_FIRST acc, w, x0, x1
    sxtb16 r10, \w
    sxtb16 \w, \w, ror #8
    smuad \acc, r10, \x0
    smlad \acc, \w, \x1, \acc
.endm

@ Eight columns of both rows.
.macro EIGHT_Q8 first
    ldmia r2!, {r4-r7}
    ldrd r8, r9, [r0], #8
    FOUR_Q8\first r11, r8, r4, r5
    FOUR_Q8 r11, r9, r6, r7
    ldrd r8, r9, [r1], #8
    FOUR_Q8\first r12, r8, r4, r5
    FOUR_Q8 r12, r9, r6, r7
.endm

@ Eight nibbles in r8 times r4-r7, added to \acc.
.macro NIBBLES acc
    and r10, r9, r8
    smlad \acc, r10, r4, \acc
    and r10, r9, r8, lsr #4
    smlad \acc, r10, r5, \acc
    and r10, r9, r8, lsr #8
    smlad \acc, r10, r6, \acc
    and r10, r9, r8, lsr #12
    smlad \acc, r10, r7, \acc
.endm

.macro NIBBLES_FIRST acc
    and r10, r9, r8
    smuad \acc, r10, r4
    and r10, r9, r8, lsr #4
    smlad \acc, r10, r5, \acc
    and r10, r9, r8, lsr #8
    smlad \acc, r10, r6, \acc
    and r10, r9, r8, lsr #12
    smlad \acc, r10, r7, \acc
.endm

.macro EIGHT_Q4 first
    ldmia r2!, {r4-r7}
    ldr r8, [r0], #4
    NIBBLES\first r11
    ldr r8, [r1], #4
    NIBBLES\first r12
.endm

@ A group is summed: the rows' sums in r4-r5 and r6-r7 grow by multiplier * group sum, from where s8-s11 kept them or, with \first, from nothing.
.macro GROUP_Q8
    KEPT
    MULTIPLIED smlal
.endm

.macro GROUP_Q8_FIRST
    MULTIPLIED smull
.endm

.macro KEPT
    vmov r4, r5, s8, s9
    vmov r6, r7, s10, s11
.endm

.macro KEEP
    vmov s8, s9, r4, r5
    vmov s10, s11, r6, r7
.endm

.macro MULTIPLIED multiply
    vmov r10, s18
    ldrb r8, [r3], #1
    ldrb r9, [r3, r10]
    \multiply r4, r5, r11, r8
    \multiply r6, r7, r12, r9
.endm

@ The same, and by offset * sum of the group's activations.
.macro GROUP_Q4
    GROUP_Q8
    OFFSET
.endm

.macro GROUP_Q4_FIRST
    GROUP_Q8_FIRST
    OFFSET
.endm

.macro OFFSET
    vmov r8, r9, s28, s29
    ldr r11, [r9], #4
    ldrsh r12, [r8], #2
    vmov s28, s29, r8, r9
    ldrsh r8, [r8, r10, lsl #1]
    smlal r4, r5, r11, r12
    smlal r6, r7, r11, r8
    mov r9, #0x000f000f
.endm

.macro NO_LAST_Q4
.endm

@ The last four columns of a row of q8.
.macro LAST_Q8
    cmp r2, lr
    beq 34f
    ldmia r2!, {r4-r5}
    ldr r8, [r0], #4
    ldr r9, [r1], #4
    FOUR_Q8 r11, r8, r4, r5
    FOUR_Q8 r12, r9, r4, r5
34:
.endm

.macro NEXT_Q8
.endm

.macro NEXT_Q4
    vmov r11, s28
    vmov r12, s30
    add r11, r11, r9, lsl #1
    vmov s28, s29, r11, r12
    mov r9, #0x000f000f
.endm

@ void f(const struct Rows *), for an even number of rows, two at a time.
@ r0, r1 rows; r2 x; r3 multipliers; r4-r7 eight activations; r8, r9 codes (q4: r9 the mask); r10 scratch; r11, r12 the group's sums; lr where groups end.
@ s0-s5 scratch; s8-s11 the sums of the rows, which r4-r7 hold after a group. The fields of `Rows` from the third on, in its order, which a move reaches faster than a load: s16 scale, s17 2^24,
@ s18 other, s19 out, s20 scales, s21 out_end, s22 next, s23 x, s24 stride, s25 x_whole, s26 x_group, s27 x_end, s28 offsets, s29 sums, s30 all_sums.
@ On the stack where a row begins and where it goes on after its whole groups of 32.
.macro MATVEC_INTEGER name, eight, group, last, next
    DSP_FUNCTION \name
    push {r4-r11, lr}
    vpush {s16-s31}
    ldmia r0!, {r1, r3}
    vldmia r0, {s16-s30}
    mov r0, r1
    vmov r2, r4, s23, s24
    vmov lr, s25
    vmov r5, s27
    add r1, r1, r4
    adr.w r6, 20f
    adr.w r7, 29f
    adr.w r8, 40f
    cmp r2, lr
    it eq
    moveq r6, r7
    cmp lr, r5
    it ne
    addne r8, r7, #8
    add r6, r6, #1
    add r8, r8, #1
    push {r6, r8}
    mov r9, #0x000f000f
    ldr pc, [sp]
@ Whole groups of 32.
20: \eight _FIRST
    \eight
    \eight
    \eight
    \group\()_FIRST
    cmp r2, lr
    beq 23f
22: KEEP
    \eight _FIRST
    \eight
    \eight
    \eight
    \group
    cmp r2, lr
    bne 22b
23: ldr pc, [sp, #4]
@ Groups of any number of eights, the last one with what is left of the row.
29: movs r4, #0
    movs r5, #0
    movs r6, #0
    movs r7, #0
30: KEEP
    vmov r4, r5, s26, s27
    add lr, r2, r4
    cmp lr, r5
    it hi
    movhi lr, r5
    mov r11, #0
    mov r12, #0
    b 33f
32: \eight
33: sub r4, lr, r2
    cmp r4, #16
    bhs 32b
    \last
    \group
    vmov r8, s27
    cmp r2, r8
    bne 30b
@ Sums to floats; nearly all fit 32 bits.
40: cmp r5, r4, asr #31
    it eq
    cmpeq r7, r6, asr #31
    bne 50f
    vmov s0, s1, r4, r6
    vcvt.f32.s32 s0, s0
    vcvt.f32.s32 s1, s1
@ The scales.
41: vmov r4, r5, s19, s20
    vldmia r5!, {s4-s5}
    vmul.f32 s4, s4, s16
    vmul.f32 s5, s5, s16
    vmul.f32 s0, s0, s4
    vmul.f32 s1, s1, s5
    vmov r6, r9, s21, s22
    vmov r2, r8, s23, s24
    vstmia r4!, {s0-s1}
    vmov s19, s20, r4, r5
    vmov lr, s25
    mov r0, r1
    add r1, r1, r8
    add r3, r3, r9
    \next
    cmp r4, r6
    it ne
    ldrne pc, [sp]
    add sp, sp, #8
    vpop {s16-s31}
    pop {r4-r11, pc}
@ Others: 2^24 * the upper part + the lower part, both exact, so that there is one rounding.
50: lsl r5, r5, #8
    lsl r7, r7, #8
    orr r5, r5, r4, lsr #24
    orr r7, r7, r6, lsr #24
    bic r4, r4, #0xff000000
    bic r6, r6, #0xff000000
    vmov s0, s1, r4, r6
    vmov s2, s3, r5, r7
    vcvt.f32.u32 s0, s0
    vcvt.f32.u32 s1, s1
    vcvt.f32.s32 s2, s2
    vcvt.f32.s32 s3, s3
    vmla.f32 s0, s2, s17
    vmla.f32 s1, s3, s17
    b 41b
    .size \name, . - \name
.endm

    MATVEC_INTEGER dmexp_dsp_matvec_q8, EIGHT_Q8, GROUP_Q8, LAST_Q8, NEXT_Q8
    MATVEC_INTEGER dmexp_dsp_matvec_q4, EIGHT_Q4, GROUP_Q4, NO_LAST_Q4, NEXT_Q4

@ void f(int16_t *codes, const float *x, const float *end, float inverse): the nearest integers of x * inverse, eight at a time. The registers say where the low halves of the four words come
@ from in pairs of elements, and where the high ones do.
.macro QUANTISE name, low0, low1, high0, high1
    DSP_FUNCTION \name
    vmov.f32 s8, s0
    push {r4-r9, lr}
10: vldmia r1!, {s0-s7}
    .irp value, s0, s1, s2, s3, s4, s5, s6, s7
    vmul.f32 \value, \value, s8
    vcvtr.s32.f32 \value, \value
    .endr
    vmov r3, r4, \low0
    vmov r5, r6, \low1
    vmov r7, r8, \high0
    vmov r9, r12, \high1
    pkhbt r3, r3, r7, lsl #16
    pkhbt r4, r4, r8, lsl #16
    pkhbt r5, r5, r9, lsl #16
    pkhbt r6, r6, r12, lsl #16
    stmia r0!, {r3-r6}
    cmp r1, r2
    bne 10b
    pop {r4-r9, pc}
    .size \name, . - \name
.endm

    QUANTISE dmexp_dsp_quantise_q8, "s0, s1", "s4, s5", "s2, s3", "s6, s7"
    QUANTISE dmexp_dsp_quantise_q4, "s0, s1", "s2, s3", "s4, s5", "s6, s7"

@ int32_t f(const int16_t *codes, const int16_t *end): the sum of the codes; eight at a time.
    DSP_FUNCTION dmexp_dsp_sum
    push {r4-r6, lr}
    mov r2, #0x00010001
    movs r3, #0
10: ldmia r0!, {r4-r6, r12}
    .irp pair, r4, r5, r6, r12
    smlad r3, \pair, r2, r3
    .endr
    cmp r0, r1
    bne 10b
    mov r0, r3
    pop {r4-r6, pc}
    .size dmexp_dsp_sum, . - dmexp_dsp_sum

    .text
