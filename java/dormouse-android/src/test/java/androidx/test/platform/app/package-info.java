/**
 * What Robolectric calls of androidx.test:monitor, which is not on Maven Central: registries that nobody asks, and monitors that nobody listens to. Where
 * that library is to be had, all of androidx/ here goes.
 */
package androidx.test.platform.app;
